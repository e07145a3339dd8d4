"""What is proposed for hosts: the bundled recordings, and hosts without a driver, without a profile, or mixed."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from nodectl.doctor.propose import Found, Proposal, described, draft_of, found, propose
from nodectl.errors import UnreachableError
from nodectl.model.host import Host
from nodectl.model.recording import Entry, Recording
from nodectl.recordings.folder import bundled, open_recording, read_host

RECORDINGS = {name: open_recording(name) for name in bundled()}


def recording(name: str) -> Recording:
    (folder,) = RECORDINGS[name].hosts.values()
    return read_host(folder, "node01", "")


def seen(name: str, **entries: Entry) -> Found:
    base = recording(name)
    changed = {key.replace("_", "-"): entry for key, entry in entries.items()}
    return found(Host("node01", "node01"), replace(base, entries={**base.entries, **changed}))


def entry(stdout: str, status: int = 0) -> Entry:
    return replace(next(iter(recording("h100-8").entries.values())), stdout=stdout, stderr="", exit_status=status)


GONE = entry("", 127)
DRIVER = ("nvidia_smi_q", "nvidia_smi_query", "proc_driver_nvidia", "driver_installed", "fabric_manager", "venv")
WITHOUT_DRIVER = dict.fromkeys(DRIVER, GONE)


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_bundled_recording_gets_its_own_profiles(name: str) -> None:
    own = RECORDINGS[name].profiles
    proposal = propose(seen(name))
    assert (proposal.hardware, proposal.stack, proposal.driver) == (own["hardware"], own["stack"], "keep")
    assert "installed there already" in proposal.reasons["stack"]
    assert proposal.notes == ()


def test_gpus_without_a_driver_are_found_on_the_bus() -> None:
    rows = "".join(f"0000:0{number}:00.0 0x030000 0x2684\n" for number in (3, 4, 5))
    bare = seen("rtx4090-3", pci_nvidia=entry(rows), **WITHOUT_DRIVER)
    proposal = propose(bare)
    assert described(bare).startswith("3 x RTX 4090, no NVIDIA driver, ")
    assert (proposal.hardware, proposal.driver) == ("rtx4090-3", "manage")
    assert proposal.stack not in ("cpu", "none")


def test_bridges_on_the_bus_tell_boards_from_cards() -> None:
    gpus = [f"0000:{number:02x}:00.0 0x030200 0x2330" for number in range(8)]
    rows = "\n".join([*gpus, "0000:f0:00.0 0x068000 0x22a3"])
    assert propose(seen("h100-8", pci_nvidia=entry(rows), **WITHOUT_DRIVER)).hardware == "h100-8"
    cards = propose(seen("h100-8", pci_nvidia=entry("\n".join(gpus)), **WITHOUT_DRIVER))
    assert cards.hardware == "h100-pcie-8"


def test_hardware_of_no_profile_is_told() -> None:
    two = "".join(f"0000:0{number}:00.0 0x030000 0x2684\n" for number in (3, 4))
    proposal = propose(seen("rtx4090-3", pci_nvidia=entry(two), **WITHOUT_DRIVER))
    assert proposal.hardware == "auto" and proposal.stack.startswith("cu")
    assert "profiles/hardware/NAME.yml" in proposal.notes[0]


def test_mixed_gpus_are_no_profiles() -> None:
    rows = "a 0x030000 0x2684\nb 0x030000 0x2684\nc 0x030200 0x2330\n"
    assert propose(seen("rtx4090-3", pci_nvidia=entry(rows), **WITHOUT_DRIVER)).hardware == "auto"


def test_a_host_without_gpus_gets_no_cuda() -> None:
    proposal = propose(seen("rtx4090-3", pci_nvidia=entry(""), **WITHOUT_DRIVER))
    assert (proposal.hardware, proposal.stack, proposal.driver) == ("lab-cpu", "cpu", "")


def test_a_driver_that_fails_does_not_hide_its_gpus() -> None:
    broken = entry("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9)
    failing = {**WITHOUT_DRIVER, "nvidia_smi_q": broken, "nvidia_smi_query": broken}
    with pytest.raises(UnreachableError, match="its GPUs"):
        seen("rtx4090-3", pci_nvidia=entry(""), **failing)
    rows = "".join(f"0000:0{number}:00.0 0x030000 0x2684\n" for number in (3, 4, 5))
    assert propose(seen("rtx4090-3", pci_nvidia=entry(rows), **failing)).hardware == "rtx4090-3"


def test_an_old_driver_that_is_kept_gets_a_stack_that_it_takes() -> None:
    old = entry(recording("rtx4090-3").entries["proc-driver-nvidia"].stdout.replace("580.95.05", "535.183.01"))
    proposal = propose(seen("rtx4090-3", proc_driver_nvidia=old, venv=GONE))
    assert proposal.stack in ("cu121", "cu128")
    newest = propose(seen("rtx4090-3", venv=GONE))
    assert newest.stack == "cu13" and "newest" in newest.reasons["stack"]


def test_hosts_of_different_hardware_get_groups_of_their_own() -> None:
    hosts = []
    for number, name in enumerate((*RECORDINGS, "h100-8"), start=1):
        one = seen(name)
        hosts.append(replace(one, host=Host(f"node{number:02}", f"10.0.0.{number}")))
    reached = {one.host.name: {"ansible_host": one.host.address, "ansible_user": "ops"} for one in hosts}
    draft, notes = draft_of(hosts, reached)
    assert notes == ()
    assert draft.shared == {"ansible_user": "ops"}
    assert {group.name: len(group.hosts) for group in draft.groups} == {"dgx_a100": 1, "h100_8": 2, "rtx4090_3": 1}
    inventory = yaml.safe_load(draft.files()[Path("hosts.yml")])
    assert inventory["all"]["children"]["h100_8"]["hosts"]["node04"] == {"ansible_host": "10.0.0.4"}


def test_what_the_operator_must_choose_is_a_note() -> None:
    one = seen("dgx-a100")
    without_ports = replace(one, seen=replace(one.seen, ports=None))
    proposal: Proposal = propose(without_ports)
    assert any("would fit as well" in note for note in proposal.notes)
