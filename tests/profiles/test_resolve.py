"""Merging and validating profiles: what comes out, and what is refused with which words."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from nodectl.errors import ProfileError
from nodectl.profiles import KINDS
from nodectl.profiles.compat import IncompatibleError
from nodectl.profiles.load import find_profiles, profile_dirs
from nodectl.profiles.resolve import Resolved, load_profile, resolve
from nodectl.profiles.schema import Floor


def article(**overrides: Any) -> Resolved:
    return resolve("lab-cpu", "cpu", "article-20g", overrides=overrides)


def own(tmp_path: Path, kind: str, name: str, text: str) -> tuple[Path, ...]:
    folder = tmp_path / "profiles" / kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yml").write_text(text)
    return profile_dirs([str(tmp_path / "hosts.yml")])


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in find_profiles(kind)])
def test_every_shipped_profile_is_valid_and_described(kind: str, name: str) -> None:
    assert load_profile(kind, name).description


def test_stock_sets_nothing_but_the_base() -> None:
    variables = resolve("lab-cpu", "cpu", "stock").as_variables()
    assert variables["sysctl"] == [] and variables["nccl_env"] == {} and variables["warnings"] == []
    assert set(variables["limits"]) == {"memlock", "nofile"}


@pytest.mark.parametrize(
    ("nccl", "algo", "proto"),
    [
        ("2.12.7", "Tree", "LL"),
        ("2.23.4", "Tree", "LL"),
        ("2.24", "ring,tree;allreduce:tree", "LL,Simple;allreduce:LL"),
        ("2.31.1", "ring,tree;allreduce:tree", "LL,Simple;allreduce:LL"),
        (None, "ring,tree;allreduce:tree", "LL,Simple;allreduce:LL"),
    ],
)
def test_nccl_variables_take_the_form_of_the_stacks_nccl(nccl: str | None, algo: str, proto: str) -> None:
    env = article(stack={"nccl": nccl}).nccl_env
    assert (env["NCCL_ALGO"], env["NCCL_PROTO"]) == (algo, proto)
    assert (env["NCCL_NSOCKS_PERTHREAD"], env["NCCL_SOCKET_NTHREADS"]) == ("4", "2")


def test_debugging_variables_are_a_warning_each_time() -> None:
    (warning,) = article().warnings
    assert "NCCL_ALGO, NCCL_PROTO" in warning and "NSOCKS" not in warning


def test_overrides_replace_add_and_take_away() -> None:
    resolved = article(
        sysctl={"net.core.somaxconn": 4096, "net.core.rmem_max": None},
        nccl={"NCCL_IB_HCA": "=mlx5_0"},
        limits={"nofile": {"value": 65536, "why": "old switch software"}},
    )
    assert "net.core.rmem_max" not in resolved.tuning.sysctl
    assert resolved.tuning.sysctl["net.core.somaxconn"].value == "4096"
    assert resolved.tuning.sysctl["net.core.somaxconn"].origin == "nodectl_overrides"
    assert resolved.nccl_env["NCCL_IB_HCA"] == "=mlx5_0"
    assert resolved.as_variables()["limits"] == {"memlock": "unlimited", "nofile": "65536"}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"sysctll": {}}, "nodectl_overrides.sysctll: no such field"),
        ({"sysctl": "x"}, "nodectl_overrides.sysctl: 'x' is not a mapping"),
        ({"sysctl": {"net.core.rmem_max": {"vlaue": 1}}}, "sysctl.net.core.rmem_max.vlaue: no such field"),
        ({"sysctl": {"../../etc/passwd": 1}}, "no sysctl key"),
        ({"sysctl": {"net.core.rmem_max": "1\nkernel.panic = 1"}}, "one line"),
        ({"nccl": {"NCCL_DEBUG ": "WARN"}}, "no NCCL variable"),
        ({"nccl": {"LD_PRELOAD": "/tmp/x.so"}}, "no NCCL variable"),
        ({"nccl": {"NCCL_DEBUG": " WARN"}}, "trims nothing"),
        ({"nccl": {"NCCL_DEBUG": "WARN\nNCCL_ALGO=Tree"}}, "one line"),
        ({"nccl": {"NCCL_DEBUG": '"WARN"'}}, "no quotes"),
        ({"nccl": {"NCCL_DEBUG": "x" * 1024}}, "1023"),
        ({"limits": {"stack": "unlimited"}}, "limits.stack"),
        ({"limits": {"nofile": -1}}, "positive whole number"),
        ({"stack": {"torhc": "2.13.0"}}, "torhc: no such field"),
        ({"allow_debug_variables": False}, "of NCCL's debugging class"),
    ],
)
def test_a_wrong_override_is_refused_with_its_path(overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(ProfileError) as caught:
        article(**overrides)
    assert words in caught.value.message and caught.value.exit_status == 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_name_lists_the_known_ones(kind: str) -> None:
    names = {"hardware": "lab-cpu", "stack": "cpu", "tuning": "stock"} | {kind: "../cpu"}
    with pytest.raises(ProfileError) as caught:
        resolve(names["hardware"], names["stack"], names["tuning"])
    assert caught.value.message == f"there is no {kind} profile '../cpu'"
    assert f"nodectl_{kind}" in caught.value.remedy and all(name in caught.value.remedy for name in find_profiles(kind))


def test_a_fleets_own_profile_lies_beside_its_inventory_and_wins(tmp_path: Path) -> None:
    folders = own(tmp_path, "tuning", "stock", "description: ours\nsysctl: {net.core.somaxconn: {value: 1, why: x}}\n")
    assert resolve("lab-cpu", "cpu", "stock", extra_dirs=folders).tuning.description == "ours"
    assert resolve("lab-cpu", "cpu", "stock").tuning.sysctl == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "description: x\nsysctl: {net.core.somaxconn: {value: 1, vlaue: 2, why: x}}",
            "somaxconn.vlaue: no such field",
        ),
        ("description: x\nsysctl: {net.core.somaxconn: {value: 1}}", "somaxconn.why"),
        ("description: x\ndescription: y", "'description' stands twice"),
        ("description: [", "line 1"),
        ("- a list", "is a mapping of fields"),
        ("description: x\nnccl: {NCCL_ALGO: {value: Tree, why: x}}", "NCCL's debugging class"),
        ("description: x\nnccl: {NCCL_NET: {why: x}}", "either 'value' or 'forms'"),
        ("description: x\nnccl: {NCCL_NET: {why: x, forms: [{below: '2.24', value: a}]}}", "has no 'below'"),
        ("description: x\nnccl: {NCCL_NET: {why: x, forms: [{value: a}, {value: b}]}}", "needs 'below'"),
    ],
)
def test_a_malformed_profile_is_refused_with_its_file_and_path(tmp_path: Path, text: str, words: str) -> None:
    folders = own(tmp_path, "tuning", "mine", text)
    with pytest.raises(ProfileError) as caught:
        resolve("lab-cpu", "cpu", "mine", extra_dirs=folders)
    assert words in caught.value.message and "mine.yml" in caught.value.message


def test_profiles_that_cannot_work_together_are_a_finding_not_a_slip(tmp_path: Path) -> None:
    folders = own(tmp_path, "hardware", "gpus", "description: x\ngpus: 8\n")
    with pytest.raises(IncompatibleError) as caught:
        resolve("gpus", "cpu", "stock", extra_dirs=folders)
    assert "8 GPUs" in caught.value.message and caught.value.exit_status == 1


def test_no_profile_of_the_fleet_s_own_is_called_auto(tmp_path: Path) -> None:
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "auto.yml").write_text("description: eight of ours\ngpus: 8\n")
    with pytest.raises(ProfileError, match="auto"):
        resolve("auto", "none", "stock", extra_dirs=(tmp_path,))


FLOOR: dict[str, Any] = {"probe": "tcp", "unit": "Gb/s", "source": "a test"}


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 0.0, -1.0])
def test_a_value_that_nothing_reaches_or_everything_does_is_refused(value: float) -> None:
    with pytest.raises(ValidationError, match="value"):
        Floor(**FLOOR, value=value)
