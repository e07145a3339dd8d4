"""What a host should be, from its variables: one answer for health, tune, probes and Ansible."""

import re

import pytest
import yaml

from nodectl.common.resources import share_dir
from nodectl.errors import ProfileError
from nodectl.health.host import wanted_of
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.profiles.host import hardware_of, of_host, of_variables
from nodectl.profiles.role_values import PROFILES, TUNING, refuse_repeated
from nodectl.trials.sides import refuse_impossible

NAMES = {"nodectl_hardware": "lab-cpu", "nodectl_stack": "cpu", "nodectl_tuning": "stock"}


def host(**variables: object) -> Host:
    return Host("a", "a", variables={**NAMES, **variables})


def test_names_go_before_the_hosts_own() -> None:
    resolved = of_host(host(), names={"stack": "cu13", "hardware": "dgx-a100"})
    assert resolved is not None
    assert dict(resolved.names) == {"hardware": "dgx-a100", "stack": "cu13", "tuning": "stock"}


def test_without_a_stack_no_version_is_expected_and_nothing_is_installed() -> None:
    variables = {"nodectl_hardware": "dgx-a100"}
    resolved = of_host(Host("a", "a", variables=variables))
    assert resolved is not None and "stack" not in resolved.names and resolved.hardware.gpus == 8
    with pytest.raises(ProfileError, match="nodectl_stack is not set"):
        of_variables(variables)


def test_the_hosts_nccl_variables_go_before_its_overrides() -> None:
    overrides = {"nccl": {"NCCL_IB_TC": 1, "NCCL_IB_TIMEOUT": 20}}
    resolved = of_host(host(nodectl_overrides=overrides, nodectl_nccl_env={"NCCL_IB_TC": 106}))
    assert resolved is not None
    assert {name: resolved.nccl_env[name] for name in overrides["nccl"]} == {
        "NCCL_IB_TC": "106",
        "NCCL_IB_TIMEOUT": "20",
    }


def test_each_value_says_which_variable_of_the_host_it_is_from() -> None:
    overrides = {"nccl": {"NCCL_ALGO": "Ring", "NCCL_IB_TIMEOUT": 20}}
    # null takes away what would be refused
    resolved = of_host(host(nodectl_overrides=overrides, nodectl_nccl_env={"NCCL_ALGO": None, "NCCL_IB_TC": 106}))
    assert resolved is not None
    assert {name: setting.origin for name, setting in resolved.tuning.nccl.items()} == {
        "NCCL_IB_TIMEOUT": "nodectl_overrides",
        "NCCL_IB_TC": "nodectl_nccl_env",
    }


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"nodectl_nccl_env": {"nccl ib": 1}}, "tuning stock with nodectl_nccl_env: nccl.nccl ib"),
        ({"nodectl_nccl_env": {"NCCL_ALGO": "Ring"}}, "tuning stock with nodectl_nccl_env: profile: NCCL_ALGO: of"),
        ({"nodectl_nccl_env": {"NCCL_IB_TC": [1]}}, "tuning stock with nodectl_nccl_env: nccl.NCCL_IB_TC.value"),
        (
            {"nodectl_overrides": {"nic": {"mtu": 1}}, "nodectl_nccl_env": {"NCCL_IB_TC": 1}},
            "tuning stock with nodectl_overrides: nic.mtu.value",
        ),
        ({"nodectl_nccl_env": "NCCL_IB_TC=1"}, "nodectl_nccl_env is 'NCCL_IB_TC=1'"),
        ({"nodectl_overrides": [1]}, "nodectl_overrides is"),
        ({"nodectl_overrides": {"nccl": 1}, "nodectl_nccl_env": {"NCCL_IB_TC": 1}}, "nodectl_overrides.nccl"),
        ({"nodectl_tuning": "nope"}, "no tuning profile 'nope'"),
    ],
)
def test_what_cannot_be_is_refused_by_all_with_one_reason(variables: dict[str, object], reason: str) -> None:
    """Health tells it, a trial does not start, and a play is refused by the lookup, which calls `of_variables`."""
    wrong = host(**variables)
    with pytest.raises(ProfileError) as refused:
        of_variables(wrong.variables)
    assert reason in refused.value.message
    told = wanted_of(wrong, {}, ())
    assert told.resolved is None
    assert [(each.check, each.status, each.actual) for each in told.findings] == [
        ("profiles", Status.UNKNOWN, refused.value.message)
    ]
    with pytest.raises(ProfileError) as of_trial:
        refuse_impossible("own", [wrong], ())
    assert of_trial.value.message == f"own on a: {refused.value.message}"


def test_hardware_is_read_without_the_other_profiles_and_with_its_overrides() -> None:
    own = host(nodectl_hardware="dgx-a100", nodectl_tuning="nope", nodectl_overrides={"hardware": {"gpus": 7}})
    hardware = hardware_of(own)
    assert hardware.gpus == 7
    assert hardware_of(Host("a", "a")).gpus is None


def test_variables_of_roles_are_what_the_host_should_be() -> None:
    resolved = of_host(
        host(
            nodectl_tuning="roce",
            nodectl_overrides={"limits": {"nofile": 4096}, "nccl": {"NCCL_IB_TC": 1}},
            limits_nofile=65536,
            nic_mtu="4200",
            nic_rings=False,
            nccl_env_variables={"NCCL_DEBUG": "WARN"},
            kernel_settings_wanted=[{"key": "net.ipv4.tcp_fin_timeout", "value": 30, "why": "a test"}],
        )
    )
    assert resolved is not None
    shown = resolved.as_variables()
    assert shown["limits"] == {"memlock": "unlimited", "nofile": "65536"}
    assert (shown["nic"]["mtu"], shown["nic"]["rings"]) == (4200, None)
    assert shown["nccl_env"] == {"NCCL_DEBUG": "WARN"}
    (only,) = shown["sysctl"]
    assert only == {"key": "net.ipv4.tcp_fin_timeout", "value": "30", "never_lower": False, "why": "a test"}
    assert resolved.tuning.limits["nofile"].origin == "limits_nofile"


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"limits_nofile": "many"}, r"limits_nofile: .*a limit is a positive whole number"),
        ({"nic_mtu": "big"}, "nic_mtu is 'big'"),
        ({"kernel_settings_wanted": {"vm.swappiness": 1}}, "kernel_settings_wanted is"),
        ({"nccl_env_variables": "NCCL_DEBUG=WARN"}, "nccl_env_variables is"),
        ({"gpu_settings_wanted": {"clock": "max"}}, "gpu_settings_wanted: gpu.clock"),
    ],
)
def test_a_variable_of_a_role_that_is_malformed_is_named(variables: dict[str, object], reason: str) -> None:
    with pytest.raises(ProfileError, match=reason):
        of_host(host(**variables))


def test_what_is_installed_is_changed_in_the_profiles_alone() -> None:
    with pytest.raises(ProfileError, match="nvidia_driver_branch is set for this host") as refused:
        refuse_repeated({"nvidia_driver_branch": "535"})
    assert "nodectl_overrides, {stack: {driver: {branch: …}}}" in refused.value.remedy


def test_each_variable_that_repeats_a_profile_is_taken_or_refused() -> None:
    """Those that a play gives a role straight from a profile, but for addresses, which no check judges."""
    harmless = {"nccl_tests_url", "nccl_tests_commit", "nvidia_repository_key_fingerprint"}
    harmless |= {"pytorch_index", "pytorch_index_packages"}
    straight = r"\{\{ fleet\.(stack|hardware|limits|nic|gpu|sysctl|nccl_env)\b\S* (\}\}|\| (bool|default|dict2items)\b)"
    files = [yaml.safe_load(path.read_text()) for path in share_dir().glob("roles/*/defaults/profiles.yml")]
    repeated = {name for variables in files for name, value in variables.items() if re.match(straight, str(value))}
    assert repeated - harmless == set(TUNING) | set(PROFILES)
