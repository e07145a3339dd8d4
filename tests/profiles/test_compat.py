"""The matrix and its rules: every shipped stack agrees with it, and the nearest choice is one that really works."""

from typing import Any

import pytest

from nodectl.errors import ProfileError
from nodectl.profiles.compat import IncompatibleError
from nodectl.profiles.host_compat import HostLook
from nodectl.profiles.load import find_profiles
from nodectl.profiles.matrix import matrix
from nodectl.profiles.resolve import Resolved, load_profile, load_stacks, resolve
from nodectl.profiles.schema import Hardware
from tests.profiles.combinations import LOOK, REFUSED, Combination

STACKS = load_stacks()


def look(policy: str | None = None, **found: Any) -> HostLook:
    return HostLook.create({**LOOK, **found}, policy)


def codes(resolved: Resolved) -> set[str]:
    return {problem.code for problem in resolved.problems}


@pytest.mark.parametrize("name", sorted(name for name, stack in STACKS.items() if stack.torch))
def test_every_shipped_stack_is_a_row_of_the_matrix(name: str) -> None:
    stack = STACKS[name]
    row = matrix().torch_row(stack)
    assert row is not None and row.source
    for field in ("cudnn", "nccl"):
        assert getattr(stack, field) == getattr(row, field)
        assert (field in row.unsure) == (field in stack.unverified)


@pytest.mark.parametrize("name", sorted(name for name, stack in STACKS.items() if stack.cuda))
def test_every_shipped_cuda_stack_says_for_what_it_exists_and_who_says_so(name: str) -> None:
    stack = STACKS[name]
    assert stack.os and stack.architectures and stack.driver and stack.dcgm and stack.nccl_tests
    said = {*stack.sources, *stack.unverified}
    told = {"os", "python", "cuda", "cudnn", "nccl", "driver", "dcgm", "nccl_tests"}
    assert told <= said


def test_every_row_of_the_matrix_that_may_refuse_has_a_source() -> None:
    rows = matrix()
    sources = [
        row.source for group in (rows.cuda, rows.flavours, rows.torch, rows.kernels, rows.deepspeed) for row in group
    ]
    assert all(sources)
    assert all(row.dropped_source for row in rows.gpus if row.dropped_by)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.code)
def test_an_impossible_combination_has_its_reason_its_source_and_the_nearest_that_works(case: Combination) -> None:
    found = refusal(case)
    assert case.reason in found.reason and case.nearest in found.nearest and found.source


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.code)
def test_a_named_stack_really_works_in_the_place_of_the_refused_one(case: Combination) -> None:
    found = refusal(case)
    named = [word.split()[1] for word in found.nearest.split(" or ") if word.startswith("stack ")]
    for name in named:
        # the overrides of the stack belong to the refused one
        overrides = {key: value for key, value in case.overrides.items() if key != "stack"}
        settled = resolve(
            case.hardware,
            name,
            case.tuning,
            overrides=overrides,
            look=HostLook.create(case.variables["nodectl_recorded_look"], case.driver),
        )
        # the look's GPUs are those of a DGX A100, whatever the case says
        assert [problem for problem in settled.refusals if not problem.misfit] == []


def refusal(case: Combination) -> Any:
    host = HostLook.create(case.variables["nodectl_recorded_look"], case.driver)
    try:
        (problem,) = resolve(case.hardware, case.stack, case.tuning, overrides=case.overrides, look=host).refusals
    except IncompatibleError as error:
        (problem,) = (each for each in error.problems if case.reason in each.reason)
    return problem


def test_general_knowledge_warns_and_never_refuses() -> None:
    # torch 2.5.1's build for CUDA 11.8 loads NCCL 2.21.5 as far as is generally known
    row = next(row for row in matrix().torch if (row.torch, row.cuda) == ("2.5.1", "11.8"))
    assert row.nccl == "2.21.5" and "nccl" in row.unsure
    stack: dict[str, Any] = {"torch": "2.5.1", "cudnn": row.cudnn, "nccl": "2.20.5", "python": {"min": "3.9"}}
    stack["packages"] = {"torchvision": "0.20.1"}
    found = resolve("dgx-a100", "cu118", "stock", overrides={"stack": stack})
    assert "torch-nccl-not-of-one-row" in codes(found)
    assert any("2.21.5 of its wheel" in text and "no source" in text for text in found.warnings)


@pytest.mark.parametrize("name", sorted(name for name, stack in STACKS.items() if stack.torch))
def test_every_shipped_stack_has_the_torchvision_of_its_torch(name: str) -> None:
    stack = STACKS[name]
    assert stack.torch and matrix().torchvision.serves(stack.packages["torchvision"], stack.torch) is True
    # a torch that names its build is found on PyTorch's index only, and so is its torchvision, but for aarch64
    build, own = stack.torch.partition("+")[2], stack.packages["torchvision"].partition("+")[2]
    assert own == ("" if "aarch64" in stack.architectures else build)


@pytest.mark.parametrize("policy", [None, "keep"])
def test_a_driver_that_works_is_kept_by_itself(policy: str | None) -> None:
    old = look(policy, driver={"version": "470.57.02", "origin": "apt"})
    assert {each.code for each in resolve("dgx-a100", "cu121", "stock", look=old).refusals} == {"driver-too-old"}
    assert resolve("dgx-a100", "cu118", "stock", look=old).refusals == ()


@pytest.mark.parametrize("wrong", ["kepp", True, 3])
def test_a_wrong_nodectl_driver_is_refused(wrong: object) -> None:
    with pytest.raises(ProfileError) as caught:
        HostLook.create(LOOK, wrong)
    assert "nodectl_driver is" in caught.value.message


def test_reasons_turn_refusals_into_warnings_that_carry_them() -> None:
    found = resolve("h100-pcie-8", "cu116", "stock", allow_unsupported=["our own build"])
    assert found.unsupported == ("our own build",)
    assert any("allowed because: our own build. " in text and "9.0" in text for text in found.warnings)
    assert found.as_variables()["unsupported"] == ["our own build"]


@pytest.mark.parametrize(("hardware", "of"), [("rtx4090-3", "8.6"), ("l40s-8", "8.6")])
def test_a_gpu_that_runs_older_code_is_told_what_it_loses(hardware: str, of: str) -> None:
    found = resolve(hardware, "cu116", "stock", look=None)
    assert found.refusals == () and "gpu-by-older-code" in codes(found)
    assert any(f"it runs that of {of}: FP8 is out of reach, nvcc builds nothing" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"NCCL_P2P_DISABLE": 1}, "takes NVLink away: GPUs of one host meet in its memory"),
        ({"NCCL_P2P_LEVEL": "LOC"}, "NCCL_P2P_LEVEL=LOC takes NVLink away"),
        ({"NCCL_IB_DISABLE": 1}, "leaves the RDMA ports unused"),
        ({"NCCL_NET": "Socket"}, "NCCL_NET=Socket leaves the RDMA ports"),
        ({"NCCL_NET_GDR_LEVEL": "LOC"}, "through the hosts' memory"),
        ({"NCCL_NVLS_ENABLE": 0}, "takes the reduction in the NVSwitches away"),
    ],
)
def test_what_takes_the_hardware_away_says_what_it_costs(env: dict[str, object], told: str) -> None:
    found = resolve("h100-8", "cu128", "stock", nccl_env=env, overrides={"allow_debug_variables": True})
    assert any(told in text for text in found.warnings), found.warnings
    for hardware in ("a100-pcie-8", "rtx4090-3"):
        plain = resolve(hardware, "cu128", "stock", nccl_env=env, overrides={"allow_debug_variables": True})
        assert not any(told in text for text in plain.warnings)


@pytest.mark.parametrize("wrong", ["yes", True, [""], [1], {"a": 1}])
def test_reasons_are_a_list_of_sentences(wrong: object) -> None:
    with pytest.raises(ProfileError) as caught:
        resolve("h100-pcie-8", "cu116", "stock", allow_unsupported=wrong)
    assert "nodectl_allow_unsupported" in caught.value.message and caught.value.exit_status == 2


def test_unknown_hardware_is_what_is_seen_and_refused_only_where_its_gpus_are_idle() -> None:
    hardware = resolve("unknown", "cu121", "stock", look=look()).as_variables()["hardware"]
    assert (hardware["known"], hardware["gpus"], hardware["nvswitch"]) == (False, 8, True)
    idle = resolve("unknown", "cpu", "stock", look=look())
    assert [problem.code for problem in idle.refusals] == ["gpus-idle"]
    meant = resolve("unknown", "cpu", "stock", look=look(), misfit="allow")
    assert meant.refusals == () and any(text.startswith("allowed by nodectl_misfit: ") for text in meant.warnings)
    assert resolve("unknown", "cpu", "stock").as_variables()["hardware"]["gpus"] == 0


def test_a_recorded_look_is_told_of_each_time() -> None:
    found = resolve("dgx-a100", "cu121", "stock", look=look(recorded=["driver", "os"]))
    assert (
        "recorded, not found on this host: driver, os (nodectl_recorded_look, or a lab host that is dressed)"
        in found.warnings
    )


def test_gpus_that_are_seen_are_judged_as_what_they_are() -> None:
    hoppers = [{"address": "0000:01:00.0", "device": "0x2330"}] * 8
    found = resolve("unknown", "cu116", "stock", look=look(gpus=hoppers)).refusals
    (problem,) = (each for each in found if each.code == "gpu-newer-than-cuda")
    assert problem.reason.startswith("seen here: Hopper") and problem.nearest == "stack cu118"
    cards = [{"address": "0000:01:00.0", "device": "0x2684"}] * 8
    assert "gpu-by-older-code" in codes(resolve("unknown", "cu116", "stock", look=look(gpus=cards)))
    assert "pci.ids" in problem.source
    (other,) = resolve("a100-pcie-8", "cu121", "stock", look=look(gpus=cards)).refusals
    assert other.code == "gpu-model" and "RTX 4090" in other.reason and "seen here" in other.reason
    assert "gpu-model" not in codes(resolve("a100-pcie-8", "cu121", "stock", look=look()))


@pytest.mark.parametrize(("stack", "asked"), [("cu121", True), ("cu128", False)])
def test_roce_needs_a_gid_index_only_where_nccl_does_not_find_it(stack: str, asked: bool) -> None:
    assert ("nccl-gid-index-missing" in codes(resolve("dgx-a100-20g", stack, "roce"))) is asked
    host = {"nccl": {"NCCL_IB_GID_INDEX": 3}}
    found = codes(resolve("dgx-a100-20g", stack, "roce", overrides=host))
    assert "nccl-gid-index-missing" not in found and ("nccl-gid-index" in found) is not asked


@pytest.mark.parametrize("value", ["Tree", "tree,collnetdirect", "Tree;allreduce:tree"])
def test_a_bare_algorithm_is_refused_from_nccl_2_24_on_only(value: str) -> None:
    overrides = {"allow_debug_variables": True, "nccl": {"NCCL_ALGO": value}}
    with pytest.raises(IncompatibleError):
        resolve("dgx-a100", "cu128", "stock", overrides=overrides)
    resolve("dgx-a100", "cu121", "stock", overrides=overrides)


@pytest.mark.parametrize("value", ["ring,tree;allreduce:tree", "^nvls", "Ring", "allreduce:tree"])
def test_an_algorithm_that_leaves_a_way_for_every_collective_passes(value: str) -> None:
    resolve("dgx-a100", "cu128", "stock", overrides={"allow_debug_variables": True, "nccl": {"NCCL_ALGO": value}})


def hardware(name: str) -> Hardware:
    found = load_profile("hardware", name)
    assert isinstance(found, Hardware)
    return found


def test_a_floor_follows_the_link_that_is_found() -> None:
    floors = hardware("a100-pcie-8")
    nccl = {
        link: [floor.value for floor in floors.floors if floor.link_class in (None, link) if floor.probe == "nccl"]
        for link in ("nvswitch", "pcie", "nvlink-bridge", None)
    }
    assert nccl == {"nvswitch": [228], "pcie": [25], "nvlink-bridge": [193], None: []}


@pytest.mark.parametrize("name", find_profiles("hardware"))
def test_every_floor_names_its_source(name: str) -> None:
    assert all(floor.source and floor.unit for floor in hardware(name).floors)


# what is named for a combination, as the host's overrides of its stack would say it
CHANGES: dict[str, dict[str, Any]] = {
    "driver-branch-too-old": {"driver": {"branch": "525"}},
    "gpu-unknown-to-driver": {"driver": {"branch": "570"}},
    "driver-min-too-old": {"driver": {"min": "525"}},
    "flavour-open": {"driver": {"flavour": "proprietary"}},
    "flavour-proprietary": {"driver": {"flavour": "open"}},
    "python-outside-wheel": {"python": {"max": "3.11"}},
    "python-above-torch-1.12": {"python": {"min": "3.7", "max": "3.10"}},
    "python-range": {"python": {"min": "3.8"}},
    "torch-cuda": {"cuda": "12.1"},
    "torch-not-released": {"torch": "2.10.0", "cuda": "12.8", "cudnn": "9.10.2.21", "nccl": "2.27.5"},
    "numpy-python": {"python": {"max": "3.12"}},
    "os-unknown": {"os": ["debian-12", "ubuntu-22.04"]},
    "torch-cudnn": {"cudnn": "8.9.2.26"},
    "torch-nccl": {"nccl": "2.18.1"},
}


@pytest.mark.parametrize("case", [case for case in REFUSED if case.code in CHANGES], ids=lambda case: case.code)
def test_a_named_change_takes_the_refusal_away(case: Combination) -> None:
    found = refusal(case)
    overrides: dict[str, Any] = {**case.overrides, "stack": {**case.overrides.get("stack", {})}}
    for field, value in CHANGES[case.code].items():
        before = overrides["stack"].get(field)
        overrides["stack"][field] = {**before, **value} if isinstance(before, dict) else value
    look_of_case = HostLook.create(case.variables["nodectl_recorded_look"], case.driver)
    changed = resolve(
        case.hardware, case.stack, case.tuning, overrides=overrides, look=look_of_case, allow_unsupported=["a test"]
    )
    assert found.code not in {problem.code for problem in changed.problems if problem.refuses}
