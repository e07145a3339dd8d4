"""Facts as a table and as JSON."""

import json

from nodectl.cli.terminal import as_json
from nodectl.facts.catalogue import words_of
from nodectl.facts.gpus import Gpus
from nodectl.facts.network import Nic
from nodectl.facts.processors import Cpu, Memory
from nodectl.model.facts import Unread
from nodectl.report.hosts import facts_table


def test_hosts_that_agree_share_a_line_and_the_largest_group_comes_first() -> None:
    two, three = Memory(2048, 1, 0, 64), Memory(3072, 2, 0, 64)
    table = facts_table({"a": {"memory": three}, "b": {"memory": two}, "c": {"memory": two}}, words_of).splitlines()
    assert table[0].split() == ["SUBJECT", "HOSTS"]
    assert [line.split()[:3] for line in table[1:]] == [["memory", "b,c", "2.0"], ["memory", "a", "3.0"]]


def test_values_without_an_answer_are_questions_not_noughts() -> None:
    assert (
        words_of("cpu", Cpu(None, None, None, None, 2, 1))
        == "model not named, ? sockets, ? cores, 2 threads, 1 NUMA node"
    )
    assert words_of("memory", Memory(1024, None, None, None)) == "1.0 GiB, swap ?, /dev/shm ?"
    assert words_of("gpus", Unread("absent", "nvidia-smi is not installed")) == "absent: nvidia-smi is not installed"
    assert words_of("gpus", Gpus(0, ())) == "none"


def test_documents() -> None:
    nics = {"eth0": Nic("eth0", "up", 1500, None, ("192.0.2.1/24",))}
    document = json.loads(as_json("facts", {"nics": nics, "gpus": Unread("unknown", "it broke")}))
    (eth0,) = document["nics"].values()
    told = {name: value for name, value in eth0.items() if value not in (None, {}, [])}
    assert told["addresses"] == ["192.0.2.1/24"] and (told["name"], told["state"], told["mtu"]) == ("eth0", "up", 1500)
    assert eth0["mac"] is None and eth0["speed_mbit"] is None and eth0["driver"] is None
    assert document["gpus"] == {"unknown": "it broke"}
    long = as_json("facts", {"hosts": [nics] * 9000})
    assert "\n" not in long and json.loads(long)["hosts"][-1] == document["nics"]
