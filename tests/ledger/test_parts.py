"""A host's parts, from what it prints, and which of them a finding is about: recordings, and findings' own subjects."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from nodectl.facts.catalogue import read_facts
from nodectl.ledger.parts import concerned, facts_needed, identity_kind, named, parts_of, told_apart
from nodectl.model.acceptance import Part, PartKind
from nodectl.recordings.mask import Masker
from tests.ledger.kept import finding, parts, recorded

DGX = parts("dgx-a100", "node01")


@pytest.mark.parametrize(
    ("name", "counted"),
    [("dgx-a100", "1 host, 8 GPUs, 10 NICs"), ("h100-8", "1 host, 8 GPUs, 10 NICs"), ("rtx4090-3", "1 host, 3 GPUs")],
)
def test_each_part_of_a_recording_once(name: str, counted: str) -> None:
    there = parts(name, "node01")
    assert named(there) == counted
    assert max(Counter((part.kind, part.id) for part in there).values()) == 1
    assert {part.host for part in there} == {"node01"}
    assert named(parts(name, "node02")) == counted
    assert not {part.id for part in parts(name, "node02")} & {part.id for part in there}


def test_a_part_says_what_it_is_and_where() -> None:
    facts = read_facts(recorded("h100-8", "x"), facts_needed())
    facts["host_serial"] = "S512345X4A12207"
    host, gpu, *_ = parts_of("gpu07", facts)
    assert host == Part(PartKind.HOST, "S512345X4A12207", "gpu07", "Supermicro SYS-821GE-TNHR", "", "S512345X4A12207")
    assert (gpu.kind, gpu.model, gpu.place) == (PartKind.GPU, "NVIDIA H100 80GB HBM3", "GPU 0 at 0000:1b:00.0")
    assert gpu.id.startswith("GPU-") and re.fullmatch(r"\d{13}", gpu.serial)
    nic = parts_of("gpu07", facts)[9]
    assert (nic.kind, nic.place) == (PartKind.NIC, "mlx5_0, ibp24s0 at 0000:18:00.0")
    assert re.fullmatch(r"[0-9a-f]{4}(:[0-9a-f]{4}){3}", nic.id)


def test_without_a_serial_number_the_machine_id_stands_for_the_host() -> None:
    # its maker left `System Serial Number` there
    host = parts("rtx4090-3", "node01")[0]
    assert identity_kind(host) == "machine-id" and host.serial == ""
    assert identity_kind(DGX[0]) == "serial number"


@pytest.mark.parametrize("left", ["To Be Filled By O.E.M.", "Default string", "0000000000", "0123456789", "None", ""])
def test_what_makers_leave_there_is_no_serial_number(left: str) -> None:
    recording = recorded("dgx-a100", "x")
    entry = replace(recording.entries["host-serial"], stdout=f"serial number: {left}\n")
    facts = read_facts(replace(recording, entries={**recording.entries, "host-serial": entry}), facts_needed())
    assert identity_kind(parts_of("x", facts)[0]) == "machine-id"
    gone = replace(entry, stdout="", exit_status=3)
    facts = read_facts(replace(recording, entries={**recording.entries, "host-serial": gone}), facts_needed())
    assert identity_kind(parts_of("x", facts)[0]) == "machine-id"


def test_the_serial_number_is_masked() -> None:
    before = recorded("dgx-a100", "node01")
    number = before.entries["host-serial"].stdout.split()[-1]
    assert parts("dgx-a100", "node01")[0].id == number
    masked = Masker(["node01"]).masked(before).entries["host-serial"].stdout
    assert number not in masked and masked.startswith("serial number: ")


# subjects as the checks and the probes write them
@pytest.mark.parametrize(
    ("subject", "places"),
    [
        ("GPU 3", ["GPU 3"]),
        ("GPU 3 (0000:4e:00.0)", ["GPU 3"]),
        ("Xid 79 0000:0f:00", ["GPU 1"]),
        ("0000:bd:00.0", ["GPU 7"]),
        ("GPU 1, bf16", ["GPU 1"]),
        ("GPU 0, to GPU 1, direct", ["GPU 0", "GPU 1"]),
        ("node01 (GPU 0, GPU 1) against node02 (GPU 3)", ["GPU 0", "GPU 1"]),
        ("node02 (GPU 0), node01 (GPU 5) against node03 (GPU 3)", ["GPU 5"]),
        ("mlx5_7/1", ["mlx5_7"]),
        ("mlx5_10/1", []),
        ("enp97s0f0np0", ["mlx5_4"]),
        ("enp97s0f1np1 rx_errors", ["mlx5_5"]),
        ("GPU 12", []),
        ("/dev/shm", []),
        ("", []),
    ],
)
def test_what_a_finding_is_about(subject: str, places: list[str]) -> None:
    about = concerned(finding("node01", subject), "node01", DGX)
    if places:
        assert [re.split(r",| at ", part.place)[0] for part in about] == places
    else:
        assert [part.kind for part in about] == [PartKind.HOST]


def test_one_identity_in_two_hosts_at_one_time_is_told_and_kept_for_neither() -> None:
    cloned = {name: parts("rtx4090-3", name) for name in ("n1", "n2", "n3")}
    machine_id = cloned["n1"][0].id
    cloned["n2"] = (replace(cloned["n2"][0], id=machine_id), *cloned["n2"][1:])
    kept, lines = told_apart(cloned)
    assert {name: len(own) for name, own in kept.items()} == {"n1": 3, "n2": 3, "n3": 4}
    (line,) = lines
    assert line.startswith(f"n1, n2 have the same machine-id {machine_id}: a cloned image")
    assert told_apart({name: parts("rtx4090-3", name) for name in ("n1", "n2")})[1] == ()
