"""Each subject in one line: what an operator reads first."""

import json
from typing import Any

from nodectl.cli.terminal import as_json
from nodectl.facts.catalogue import all_facts, read_facts, words_of
from nodectl.facts.rdma import IbPort
from nodectl.model.recording import Recording
from nodectl.report.hosts import facts_table
from tests.checks.gpus import eight

PORT = IbPort("mlx5_0", 1, "ACTIVE", rate_gbit_s=200.0, link_layer="InfiniBand")


def test_hosts_that_agree_share_a_line_and_every_subject_is_a_document() -> None:
    unread = read_facts(Recording("n1", {}))
    same: dict[str, Any] = {**unread, "ib_ports": (PORT,), **eight()}
    lines = facts_table({"n1": same, "n2": same, "n3": {**same, "ib_ports": ()}}, words_of).splitlines()
    assert [line for line in lines if line.startswith("ib_ports")] == [
        "ib_ports        n[1-2]  1 x ACTIVE 200 Gbit/s InfiniBand",
        "ib_ports        n3      none",
    ]
    documents = json.loads(as_json("facts", same))
    assert set(documents) == {"schema", *(fact.subject for fact in all_facts())}
    assert documents["ib_ports"][0]["rate_gbit_s"] == 200.0
    assert documents["gpus"]["devices"][7]["uuid"] == "GPU-7"
    assert documents["numa"] == {"unknown": "numa is not in the recording"}
