"""Masked recordings tell nothing of the machines, and still read as before; copies are other machines of one kind."""

import ipaddress
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.facts.catalogue import read_facts
from nodectl.facts.parsers.nvidia.smi_q.report import parse_nvidia_smi_q
from nodectl.model.recording import Entry, Recording
from nodectl.recordings.folder import bundled, open_recording, read_host
from nodectl.recordings.mask import Masker, Pseudonyms, Template, serials, shapes

# real outputs of others, where they lie beside the checkout
SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "samples"
OURS = Pseudonyms(b"key", {})


def of(host: str, **texts: str) -> Recording:
    entries = {key: Entry(key, ("cat", f"/home/alice/{key}"), 0, text, "", 0.0) for key, text in texts.items()}
    return Recording(host, entries)


def masked(text: str, host: str = "gpu-a17") -> str:
    return Masker([host]).masked(of(host, text=text)).entries["text"].stdout


@pytest.mark.parametrize(
    "text",
    [
        "0000:0f:00.0 PCI bridge: 00000000:0F:00.0",
        "driver 535.161.08 VBIOS 92.00.45.00.06 firmware 20.35.1012 InfoROM 1.0.0.0 0A.1B",
        "version: 5.8.2.0, fw 16.35.30.06, kernel 5.15.0-91-generic",
        "127.0.0.1 0.0.0.0 255.255.255.0 ff:ff:ff:ff:ff:ff 00:00:00:00:00:00 :: ::1 fe80::1 ff02::1",
        "33:33:00:00:00:01 0x0000000000000000 0xffffffffffffffff 0x00000000fee00000",
        "[   12.345678] up 12:34:56 on 2024-01-02T03:04:05 std::vector",
        "Serial Number : N/A\nCounter : 1234567890123456\nErrors: 65535",
        "00000000-0000-0000-0000-000000000000 fe80:0000:0000:0000",
    ],
)
def test_what_identifies_nobody_stays(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("GPU UUID : GPU-925be680-6786-5653-edfc-0f1c7087259e", "925be680-6786-5653-edfc-0f1c7087259e"),
        ("    Serial Number                 : 1565020014800", "1565020014800"),
        ("index, serial\n0, 1565020014800\n", "1565020014800"),
        ("<serial>1565020014800</serial>", "1565020014800"),
        ("[SN] Serial number: MT2226J24976", "MT2226J24976"),
        ("Serial: S5GXNF0R\nnvme-SAMSUNG_S5GXNF0R: fine", "S5GXNF0R"),
        ("link/ether 0c:42:a1:65:12:34 brd", "65:12:34"),
        ("Device Serial Number 0c-42-a1-ff-ff-65-12-34", "65-12-34"),
        ("Port GUID: 0x0c42a10300651234", "651234"),
        ("node_guid:\t0c42:a103:0065:1234", "0065:1234"),
        ("H-0c42a10300651234", "651234"),
        ("link/infiniband 00:00:10:29:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:65:12:34", "65:12:34"),
        ("inet 10.77.3.4/16", "10.77.3.4"),
        ("inet 192.168.7.4/24", "192.168.7.4"),
        ("inet 172.20.0.4/24", "172.20.0.4"),
        ("peer 8.8.4.4:53", "8.8.4.4"),
        ("fe80:0000:0000:0000:0c42:a1ff:fe65:1234", "fe65:1234"),
        ("inet6 2001:db8:77::5/64", "2001:db8:77::5"),
        ("::ffff:10.77.3.4", "10.77.3.4"),
        ("NodeName=gpu-a17 NodeAddr=gpu-a17.dc1.corp.net", "a17"),
        ("Nov 21 12:00:00 weird-name kernel: NVRM", "weird-name"),
        ("/home/alice/venv alice", "alice"),
        ("board_id: MT_0000000223", "MT_0000000223"),
        ("machine 0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"),
    ],
)
def test_what_identifies_goes_and_the_shape_stays(text: str, secret: str) -> None:
    found = masked(text)
    assert secret not in found
    forms = [(kind, len(value)) for kind, value in shapes(found) if kind not in ("", "ipv4", "ipv6")]
    assert forms == [(kind, len(value)) for kind, value in shapes(text) if kind not in ("", "ipv4", "ipv6")]


class TestConsistent:
    def test_one_value_has_one_pseudonym_in_all_files_of_all_hosts(self) -> None:
        masker = Masker(["gpu-a17", "gpu-b02"])
        uuid = "925be680-6786-5653-edfc-0f1c7087259e"
        found = [masker.masked(of(host, one=f"GPU-{uuid}", two=f"x {uuid} gpu-b02")) for host in ("gpu-a17", "gpu-b02")]
        (one, *others) = [re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", e.stdout) for r in found for e in r.entries.values()]
        assert others == [one, one, one]
        assert [r.host for r in found] == ["host01", "host02"]
        assert all("host02" in r.entries["two"].stdout for r in found)

    def test_arguments_and_complaints_are_masked_too(self) -> None:
        entry = Entry("a", ("cat", "/home/alice/x"), 1, "", "cat: /home/alice/x: gpu-a17", 0.0)
        found = Masker(["gpu-a17"], users=["alice"]).masked(Recording("gpu-a17", {"a": entry})).entries["a"]
        assert (found.argv[1], found.stderr) == ("/home/user1/x", "cat: /home/user1/x: host01")

    def test_a_mac_its_guid_and_its_addresses_keep_belonging_together(self) -> None:
        text = "0c:42:a1:65:12:34 0x0c42a10300651234 fe80::e42:a1ff:fe65:1234 0c-42-a1-ff-ff-65-12-34"
        mac, guid, address, serial = masked(text).split()
        tail = mac[9:].replace(":", "")
        assert guid.endswith(tail)
        assert serial.replace("-", "").endswith(tail)
        assert ipaddress.IPv6Address(address).packed[-3:].hex() == tail

    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 254)), min_size=2, max_size=8, unique=True))
    def test_neighbours_stay_neighbours(self, hosts: list[tuple[int, int]]) -> None:
        for net in ("10.77", "172.20", "198.51"):
            before = [f"{net}.{third}.{fourth}" for third, fourth in hosts]
            after = [OURS.of("ipv4", each) for each in before]
            assert len(set(after)) == len(before)
            assert not set(after) & set(before)
            for prefix in (16, 24):
                assert _same_nets(before, prefix) == _same_nets(after, prefix)


def _same_nets(addresses: list[str], prefix: int) -> list[bool]:
    nets = [ipaddress.ip_network(f"{each}/{prefix}", strict=False) for each in addresses]
    return [a == b for a in nets for b in nets]


uuids = st.uuids().map(str)
macs = st.binary(min_size=3, max_size=3).filter(any).map(lambda tail: "0c:42:a1:" + tail.hex(":"))
guids = st.binary(min_size=3, max_size=3).filter(any).map(lambda tail: "0x0c42a10300" + tail.hex())
numbers = st.from_regex(r"[1-9][0-9]{12}", fullmatch=True)
addresses = st.tuples(*[st.integers(1, 254)] * 3).map(lambda rest: "10." + ".".join(map(str, rest)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(uuids, macs, guids, numbers, addresses), min_size=1, max_size=4))
def test_nothing_of_the_original_is_left(rows: list[tuple[str, str, str, str, str]]) -> None:
    lines = [f"Serial Number : {n}\nGPU-{u} {m} guid={g} via {a}, again {n}/{u}" for u, m, g, n, a in rows]
    text = "\n".join(lines)
    found = masked(text)
    for row in rows:
        for value in row:
            assert value not in found
            assert value.replace(":", "") not in found
    # and masking what is masked finds as much again
    assert [kind for kind, _ in shapes(masked(found))] == [kind for kind, _ in shapes(text)]
    assert len(serials(found)) == len(serials(text))


@pytest.mark.parametrize("name", sorted(bundled()))
def test_a_masked_machine_reads_as_before(name: str) -> None:
    fleet = open_recording(name)
    for host, folder in fleet.hosts.items():
        before = read_host(folder, host, name)
        after = Masker([host]).masked(before)
        assert shape(read_facts(before)) == shape(read_facts(after))
        whole = "\n".join(each.stdout for each in after.entries.values())
        for gpu in parse_nvidia_smi_q(before.entries["nvidia-smi-q"].stdout).gpus:
            assert gpu.uuid is None or gpu.uuid not in whole
            assert gpu.serial is None or gpu.serial not in whole
        assert host not in whole


def shape(value: object) -> object:
    """Types and keys without the values that pseudonyms stand for."""
    if isinstance(value, dict):
        return [shape(each) for each in value.values()]
    if isinstance(value, list | tuple):
        return [shape(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return type(value).__name__, [shape(getattr(value, name)) for name in value.__dataclass_fields__]
    return type(value).__name__ if isinstance(value, str) else value


TEXTS = {
    "q.out": "Serial Number : 1565020014800\nGPU-925be680-6786-5653-edfc-0f1c7087259e 535.161.08",
    "ib.out": "0x0c42a10300651234 board_id: MT_0000000223 10.77.0.1 NodeName=node01",
}


class TestCopies:
    def test_each_is_another_machine_and_always_the_same_one(self) -> None:
        a, b = Template.of(TEXTS).filled("node02"), Template.of(TEXTS).filled("node03")
        assert a == Template.of(TEXTS).filled("node02")
        seen = [set(re.findall(r"GPU-\S+|\d{13}|0x\w+", "\n".join(each.values()))) for each in (TEXTS, a, b)]
        assert [len(each) for each in seen] == [3, 3, 3]
        assert not seen[0] & seen[1] | seen[0] & seen[2] | seen[1] & seen[2]

    def test_kind_versions_and_addresses_are_the_same(self) -> None:
        found = Template.of(TEXTS).filled("node02")
        assert "535.161.08" in found["q.out"]
        assert "board_id: MT_0000000223 10.77.0.1 NodeName=node02" in found["ib.out"]

    def test_many_do_not_meet(self) -> None:
        template = Template.of(TEXTS)
        numbers = [serials(template.filled(f"node{n}")["q.out"]).pop() for n in range(300)]
        assert len(set(numbers)) == 300


@pytest.mark.slow
def test_real_outputs_keep_their_lines() -> None:
    paths = [path for path in sorted(SAMPLES.glob("*")) if path.is_file()]
    if not paths:
        pytest.skip("no samples of real outputs here")
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="replace")
        assert masked(text).count("\n") == text.count("\n"), path.name
