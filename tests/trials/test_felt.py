"""Of a candidate only that is proposed which something in its trial could feel."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.profiles.overrides import OVERRIDES
from nodectl.trials.felt import tried
from nodectl.trials.propose import proposal_of, propose
from tests.trials.saved_trial import trial
from tests.trials.trials import gaining

GLOO = ({"profile": "stock", "what": "nccl", "conditions": {"backend": "gloo"}},)
NCCL = ({"profile": "stock", "what": "nccl", "conditions": {"backend": "nccl"}},)


def proposed(path: Path, **changes: Any) -> str:
    """The inventory that is proposed of the article's tuning against stock."""
    series = (gaining(30, profile="article-20g"),)
    proposal = proposal_of(trial(baseline="stock", series=series, **changes), None)
    propose(proposal, path)
    return path.read_text()


@pytest.mark.parametrize(("probes", "conditions"), [(("tcp", "latency"), ()), (("tcp", "nccl"), GLOO)])
def test_what_no_probe_feels_is_not_proposed(
    tmp_path: Path, probes: tuple[str, ...], conditions: tuple[dict[str, object], ...]
) -> None:
    text = proposed(tmp_path / "won.yml", probes=probes, conditions=conditions)
    hosts = yaml.safe_load(text)["all"]["hosts"]
    assert set(hosts["b"][OVERRIDES]) == {"sysctl"}
    assert hosts["b"][OVERRIDES]["sysctl"]["net.core.rmem_max"]["value"] == "16777216"
    assert hosts["b"]["nodectl_tuning"] == "stock"
    assert hosts["a"][OVERRIDES]["nic"] == {"mtu": 9000}
    assert "not in here, for nothing in the trial can feel it: NCCL_ALGO, NCCL_PROTO" in text


def test_a_profile_of_which_all_was_measured_is_proposed_by_its_name(tmp_path: Path) -> None:
    text = proposed(tmp_path / "won.yml", probes=("tcp", "nccl"), conditions=NCCL)
    assert "nodectl_tuning: article-20g" in text
    assert "not in here" not in text


def test_what_a_candidate_changes_is_also_what_it_leaves_alone() -> None:
    settings = tried("article-20g", "roce")
    assert settings["sysctl", "net.core.rmem_max"] is None
    assert settings["nccl", "NCCL_IB_TC"]["value"] == "104"
    assert tried("article-20g", "article-20g") == {}
