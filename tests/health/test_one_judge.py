"""Every setting that a tuning can make: a wrong live value has one answer in health, in verify and in a trial.

And the two sides hold together: where the value is wrong the role would set it, where it is held the role leaves it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from ansible_collections.nodectl.fleet.plugins.module_utils import gpu_hw, nic_hw
from ansible_collections.nodectl.fleet.plugins.modules import kernel_settings, service_limits
from nodectl.checks.catalogue import checks
from nodectl.common.resources import share_dir
from nodectl.health.fleet import look
from nodectl.health.history import StateFile
from nodectl.health.verify import chosen_roles, verification
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.profiles import SETTINGS
from nodectl.profiles.schema import Tuning
from nodectl.recordings.source import LiveSource
from tests.lab.recorded_host import bundled

NOW = 1_800_000_000.0
NIC = "enp97s0f0np0"
SYSCTL = "vm.zone_reclaim_mode"
RINGS = """Ring parameters for {nic}:
Pre-set maximums:
RX:		8192
TX:		4096
Current hardware settings:
RX:		{rx}
TX:		4096
"""
BOOT = {"interfaces": [NIC], "mtu": 0, "rings": False, "irq": False}

Outputs = Mapping[str, str]
# what the role would run, or write, on a host with these outputs
Setter = Callable[[Outputs], Sequence[object]]


def queues(rx: int = 8192, irq_cpus: str = "0-15") -> str:
    return f"nic\t{NIC}\t0\t0-15\nirq\t101\t{irq_cpus}\n{RINGS.format(nic=NIC, rx=rx)}"


def boot(**settings: object) -> str:
    return "inactive\n" + json.dumps({**BOOT, **settings, "before": {}}) + "\n"


def gpu_report(**values: str) -> str:
    """The recording's report, with these values of every GPU."""
    text = bundled("dgx-a100")["nvidia-smi-q"].stdout
    for name, value in values.items():
        words = name.replace("_", " ")
        text = re.sub(rf"(?mi)^(\s+{words}\s+: ).*$", rf"\g<1>{value}", text)
    return text


def with_mode(name: str, word: str) -> str:
    return re.sub(rf"({name} Mode\n\s+Current\s+: )\w+(\n\s+Pending\s+: )\w+", rf"\g<1>{word}\g<2>{word}", gpu_report())


def redirecting() -> str:
    return bundled("dgx-a100")["lspci-acs"].stdout.replace("ReqRedir- CmpltRedir-", "ReqRedir+ CmpltRedir+")


def smi_rows(text: str) -> list[dict[str, str]]:
    """The report's GPUs as `gpu_hw.gpus` reads them from nvidia-smi's table."""

    def of(words: str, part: str) -> str:
        found = re.search(rf"^\s+{words}\s+: (\S+)", part, re.MULTILINE)
        return found[1] if found else "[N/A]"

    rows = []
    for part in re.split(r"^GPU ", text, flags=re.MULTILINE)[1:]:
        graphics = of("Graphics", part)
        rows.append(
            {
                "uuid": of("GPU UUID", part),
                "persistence": of("Persistence Mode", part),
                "display": of("Display Active", part),
                "power_limit_w": of("Current Power Limit", part),
                "max_graphics": graphics,
                "compute_mode": of("Compute Mode", part),
                "ecc": of("Pending", part[part.index("ECC Mode") :]),
                "mig": of("Pending", part[part.index("MIG Mode") :]),
                "clocks": graphics if graphics == "1410" else "",  # a clock above the lock disproves it
                "memory_clock": "1593",
            }
        )
    return rows


def gpu_setter(**wanted: object) -> Setter:
    def todo(outputs: Outputs) -> list[list[str]]:
        return [
            step
            for gpu in smi_rows(outputs["nvidia-smi-q"])
            for step in gpu_hw.setting_commands(gpu["uuid"], gpu_hw.targets(gpu, wanted), gpu)
        ]

    return todo


def acs_setter(outputs: Outputs) -> list[str]:
    controls = gpu_hw.parse_bridges(outputs["lspci-acs"])
    return [device for device, control in controls.items() if gpu_hw.redirected(control)]


def nic_setter(**wanted: object) -> Setter:
    def todo(outputs: Outputs) -> list[list[str]]:
        def run(argv: list[str]) -> tuple[int, str, str]:
            return 0, outputs["nic-queues"], ""

        link = next(row for row in json.loads(outputs["ip-address"]) if row["ifname"] == NIC)
        steps: list[list[str]] = nic_hw.commands(run, NIC, wanted, {"mtu": link["mtu"], "min_mtu": 68, "max_mtu": 9978})
        return steps

    return todo


def irq_setter(outputs: Outputs) -> list[str]:
    cpus = re.findall(r"^irq\t\d+\t(\S+)$", outputs["nic-queues"], re.MULTILINE)
    return [each for each in cpus if not nic_hw.cpu_set(each) <= nic_hw.cpu_set("0-15")]


def sysctl_setter(outputs: Outputs) -> list[str]:
    live = dict(line.split(" - ") for line in outputs["sysctl"].splitlines() if " - " in line)
    wanted = [{"key": SYSCTL, "value": "0", "never_lower": False}]
    held = SimpleNamespace(before=lambda key, value: value, unwanted=lambda keys, read: {})  # nothing was set before
    changes, *_ = kernel_settings.plan(wanted, held, lambda key: kernel_settings.Live(live[key.replace(".", "/")]))
    return list(changes)


def limit_setter(name: str) -> Setter:
    def todo(outputs: Outputs) -> list[str]:
        values = dict(line.split("=", 1) for line in outputs["unit-limits"].splitlines() if "=" in line)

        def run(argv: list[str]) -> tuple[int, str, str]:
            return 0, values[argv[-1]], ""

        return [name] if service_limits.is_low(run, name, "1048576") else []

    return todo


def nccl_setter(outputs: Outputs) -> list[str]:
    return [] if outputs["nccl-conf"] == "NCCL_IB_TC=106\n" else ["/etc/nccl.conf"]


def limit_outputs(name: str, value: str, unit: str) -> dict[str, str]:
    login = {"memlock": "unlimited", "nofile": "1048576"} | {name: value}
    words = f"{login['memlock']} {login['memlock']} {login['nofile']} {login['nofile']} 8192 unlimited"
    units = {"memlock": "infinity", "nofile": "1048576"} | {name: unit}
    return {
        "session-limits": words.replace(" ", "\n") + "\ncap 000001ffffffffff\n",
        "login-limits": f"user root\nlogin {words}\nsession {words}\npam yes\n",
        "unit-limits": "".join(f"DefaultLimit{kind.upper()}Soft={value}\n" for kind, value in units.items())
        + "RemoveIPC=b false\n",
    }


def with_mtu(mtu: int) -> str:
    rows = json.loads(bundled("dgx-a100")["ip-address"].stdout)
    return json.dumps([{**row, "mtu": mtu} if row.get("ifname") == NIC else row for row in rows]) + "\n"


@dataclass(frozen=True)
class Case:
    """A setting: outputs of a host that holds it, and of one that does not; `check` and `subject` tell it."""

    value: object
    check: str
    subject: str
    held: Outputs
    wrong: Outputs
    setter: Setter
    beside: Mapping[str, Any] = field(default_factory=dict)


ZONE = bundled("dgx-a100")["sysctl"].stdout.replace("vm/zone_reclaim_mode - 0", "vm/zone_reclaim_mode - {}")
CASES: dict[tuple[str, str], Case] = {
    ("sysctl", SYSCTL): Case(
        {"value": "0", "never_lower": False},
        "kernel_settings",
        SYSCTL,
        {"sysctl": ZONE.format(0)},
        {"sysctl": ZONE.format(1)},
        sysctl_setter,
    ),
    ("nccl", "NCCL_IB_TC"): Case(
        "106",
        "nccl_file",
        "NCCL_IB_TC",
        {"nccl-conf": "NCCL_IB_TC=106\n"},
        {"nccl-conf": "NCCL_IB_TC=105\n"},
        nccl_setter,
    ),
    ("limits", "memlock"): Case(
        "1048576",
        "limits",
        "memlock",
        limit_outputs("memlock", "1048576", "1073741824"),
        limit_outputs("memlock", "8192", "8388608"),
        limit_setter("memlock"),
    ),
    ("limits", "nofile"): Case(
        "1048576",
        "limits",
        "nofile",
        limit_outputs("nofile", "1048576", "1048576"),
        limit_outputs("nofile", "1024", "1024"),
        limit_setter("nofile"),
    ),
    ("nic", "mtu"): Case(
        9000,
        "mtu",
        NIC,
        {"ip-address": with_mtu(9000), "nic-boot": boot(mtu=9000)},
        {"ip-address": with_mtu(1500), "nic-boot": boot(mtu=9000)},
        nic_setter(mtu=9000),
    ),
    ("nic", "rings"): Case(
        "max",
        "nic_rings",
        NIC,
        {"nic-queues": queues(), "nic-boot": boot(rings=True)},
        {"nic-queues": queues(rx=1024), "nic-boot": boot(rings=True)},
        nic_setter(rings=True),
    ),
    ("nic", "irq"): Case(
        "numa",
        "nic_interrupts",
        NIC,
        {"nic-queues": queues(), "nic-boot": boot(irq=True)},
        {"nic-queues": queues(irq_cpus="0-63"), "nic-boot": boot(irq=True)},
        irq_setter,
    ),
    ("gpu", "persistence"): Case(
        True,
        "gpu_persistence",
        "GPU 0",
        {"nvidia-smi-q": gpu_report()},
        {"nvidia-smi-q": gpu_report(persistence_mode="Disabled")},
        gpu_setter(persistence=True),
    ),
    ("gpu", "clocks"): Case(
        "1593,1410",
        "gpu_clock_setting",
        "GPU 0",
        {"nvidia-smi-q": gpu_report(graphics="1410 MHz")},
        {"nvidia-smi-q": gpu_report(graphics="1980 MHz")},
        gpu_setter(clocks="1593,1410"),
    ),
    ("gpu", "power_limit_w"): Case(
        400,
        "gpu_power_limit",
        "GPU 0",
        {"nvidia-smi-q": gpu_report()},
        {"nvidia-smi-q": gpu_report(current_power_limit="300.00 W", requested_power_limit="300.00 W")},
        gpu_setter(power_limit_w=400),
    ),
    **{
        ("gpu", name.lower()): Case(
            name == "ECC",
            check,
            "GPU 0",
            {"nvidia-smi-q": with_mode(name, held)},
            {"nvidia-smi-q": with_mode(name, wrong)},
            gpu_setter(**{name.lower(): name == "ECC"}),
        )
        for name, check, held, wrong in (
            ("ECC", "gpu_ecc_mode", "Enabled", "Disabled"),
            ("MIG", "gpu_mig", "Disabled", "Enabled"),
        )
    },
    ("gpu", "compute_mode"): Case(
        "Exclusive_Process",
        "gpu_compute_mode",
        "GPU 0",
        {"nvidia-smi-q": gpu_report(compute_mode="Exclusive_Process")},
        {"nvidia-smi-q": gpu_report()},
        gpu_setter(compute_mode="Exclusive_Process"),
    ),
    ("gpu", "acs"): Case("off", "access_control", "", {}, {"lspci-acs": redirecting()}, acs_setter),
}


def test_every_setting_of_the_schema_is_walked() -> None:
    """A setting that is new in the schema needs a case here, which holds its role and its check together."""
    named: dict[str, set[str]] = {group: set() for group in SETTINGS}
    for group, key in CASES:
        named[group].add(key)
    for group in ("nic", "gpu"):
        model = type(getattr(Tuning(), group))
        assert named[group] == set(model.model_fields)
    assert named["limits"] == {"memlock", "nofile"} and named["sysctl"] and named["nccl"]
    assert set(SETTINGS) <= set(Tuning.model_fields)


def outputs_of(case: Case, which: Outputs) -> dict[str, str]:
    recorded = {key: output.stdout for key, output in bundled("dgx-a100").items() if output.exit_status == 0}
    live = {"nic-queues": queues(), "nic-boot": boot(), "nccl-conf": "", "nccl-conf-user": ""}
    return recorded | live | dict(case.held) | dict(which)


class Node:
    """Answers the collector's script with the outputs, as a host would print them."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs

    def printed(self, script: str) -> bytes:
        nonce = script.partition("nonce=")[2].split()[0]
        frames = [f"\nnodectl-collect/2 {NOW} plain -\n"]
        for key, text in self._outputs.items():
            frames.append(f"\n{nonce} out {key}\n{text}\n{nonce} end 0\n\n{nonce} took 1 \n")
        return "".join([*frames, f"\n{nonce} done\n"]).encode()

    def run(self, host: Host, argv: Sequence[str], **options: Any) -> CommandResult:
        options["on_output"]("stdout", self.printed(options["stdin"].decode()))
        return CommandResult(host.name, tuple(argv), Outcome.RAN, 0, "", "", 0.1)


def host_of(group: str, key: str, case: Case) -> Host:
    variables = {
        "nodectl_hardware": "dgx-a100",
        "nodectl_stack": "cu128",
        "nodectl_tuning": "stock",
        "nodectl_nics": [NIC],
        "nodectl_overrides": {group: {key: case.value}},
    }
    return Host("gpu01", "gpu01", variables=variables)


def of_setting(findings: Sequence[Finding], case: Case) -> list[tuple[Status, str, str, str]]:
    """Its findings; a check that sums GPUs up names none where all is well."""
    return [
        (finding.status, finding.expected, finding.actual, finding.remedy)
        for finding in findings
        if finding.check == case.check and (finding.subject.startswith(case.subject) or not finding.subject)
    ]


def trial_plays() -> Any:
    return yaml.safe_load((share_dir() / "playbooks" / "trial_on.yml").read_text())


def trial_roles() -> list[str]:
    judging = trial_plays()[-1]["tasks"][-1]
    return list(judging["nodectl.fleet.health"]["roles"])


def test_a_trial_judges_what_it_sets() -> None:
    tasks = [task for play in trial_plays() for task in play.get("tasks", ())]
    roles = [task["ansible.builtin.import_role"]["name"] for task in tasks if "ansible.builtin.import_role" in task]
    assert {name.rpartition(".")[2] for name in roles} == set(trial_roles())


@pytest.mark.parametrize(("group", "key"), CASES, ids=[".".join(each) for each in CASES])
@pytest.mark.parametrize("which", ["held", "wrong"])
def test_one_answer(group: str, key: str, which: str, tmp_path: Path) -> None:
    case = CASES[group, key]
    host, outputs = host_of(group, key, case), outputs_of(case, case.held if which == "held" else case.wrong)
    node = Node(outputs)
    source = LiveSource((host,), node, 1)  # type: ignore[arg-type]  # as much of a transport as it needs
    health = look(source, names={}, extra_dirs=(), state=StateFile(tmp_path, "fleet")).findings
    answers = {"health": of_setting(health, case)}
    roles = checks()[case.check].roles
    assert roles, f"no role mends {case.check}"
    for name, chosen in (("verify", None), ("verify --tags", roles), ("trial", trial_roles())):
        if name == "trial" and group in ("limits", "nccl"):
            continue  # a trial sets no limit, and gives NCCL's variables to its own processes
        asking = verification(host, (), chosen)
        findings = asking.findings(node.printed(asking.script), asked=NOW, ended=NOW + 1, heard=NOW + 1)
        answers[name] = of_setting(findings, case)
    assert all(answer == answers["health"] for answer in answers.values()), answers
    statuses = {status for status, *_ in answers["health"]}
    assert statuses == ({Status.OK} if which == "held" else {Status.FAILED})
    todo = case.setter(outputs)
    assert bool(todo) is (which == "wrong"), f"the role would do {todo}"


def verified(host: Host, node: Node, *, off_s: float = 0.0, roles: Sequence[str] | None = None) -> list[Finding]:
    """Of a host whose clock is `off_s` ahead; the task around the script took a quarter of a second."""
    asking = verification(host, (), roles)
    asked = NOW - off_s - 0.125
    return list(asking.findings(node.printed(asking.script), asked=asked, ended=NOW + 30, heard=asked + 30.25))


def test_a_line_that_nobody_asked_for_in_ncclfile_is_a_warning_everywhere(tmp_path: Path) -> None:
    case = CASES["nccl", "NCCL_IB_TC"]
    host = host_of("nccl", "NCCL_IB_TC", case)
    node = Node(outputs_of(case, {"nccl-conf": "NCCL_IB_TC=106\nNCCL_NET=IB\n"}))
    source = LiveSource((host,), node, 1)  # type: ignore[arg-type]
    health = look(source, names={}, extra_dirs=(), state=StateFile(tmp_path, "fleet")).findings
    for findings in (health, verified(host, node)):
        line = [finding for finding in findings if finding.subject == "NCCL_NET"]
        assert [(finding.check, finding.status) for finding in line] == [("nccl_file", Status.WARNING)]


def test_tags_choose_the_checks_of_their_roles() -> None:
    assert chosen_roles(["all"], []) is None
    assert chosen_roles(["kernel_settings"], []) == ("kernel_settings",)
    everything_else = chosen_roles(["all"], ["kernel_settings"])
    assert everything_else is not None and "kernel_settings" not in everything_else and "limits" in everything_else
    case = CASES["nccl", "NCCL_IB_TC"]
    found = verified(host_of("nccl", "NCCL_IB_TC", case), Node(outputs_of(case, {})), roles=["nccl_env"])
    assert {finding.check for finding in found} == {"nccl_file", "nccl_lines"}


@pytest.mark.parametrize(
    ("more", "wrong"), [({"nodectl_nccl_env": {"NCCL_ALGO": "Tree"}}, ["unknown profiles"]), ({}, [])]
)
def test_values_that_cannot_be_used_pass_no_play(more: Mapping[str, Any], wrong: list[str]) -> None:
    case = CASES["nccl", "NCCL_IB_TC"]
    own = host_of("nccl", "NCCL_IB_TC", case)
    host = replace(own, variables={**own.variables, **more})
    findings = [finding for finding in verified(host, Node(outputs_of(case, {}))) if finding.check == "profiles"]
    asking = verification(host, (), None)
    assert [line.split(":")[0] for line in asking.wrong(findings)] == wrong
