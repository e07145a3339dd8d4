"""Masked recordings name no host, login, address or serial number, and are judged as before; copies differ alike."""

import ipaddress
import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.model.recording import Entry, Recording
from nodectl.recordings.folder import bundled
from nodectl.recordings.mask import Masker, Pseudonyms, Template, serials
from tests.conftest import Cli

HF, KEY = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"

# what stands between the marks must go; what follows `=>` must be there
TABLE = r"""
hosts     | up «gpu-a17», «gpu-b02:» down                            => up host01, host02: down
hosts     | «gpu-a17.dc1.corp.net» in «dc1.corp.net»                 => host01.example in example
hosts     | NodeName=«weird-name» NodeAddr=«weird-name»              => NodeName=host01 NodeAddr=host01
hosts     | Nov 21 12:00:00 «weird-name» kernel: NVRM                => Nov 21 12:00:00 host01 kernel: NVRM
hosts     | /etc/hostname\t«weird-name»                              => host01
hosts     | Linux «weird-name» 5.15.0-91-generic x86_64              => Linux host01 5.15.0-91-generic
hosts     | 10.3.2.9 «peer-18.fra2.acme.io» «vault.fra2.acme.io»     => .9 peer1 peer2
hosts     | «nas3»:/export /data nfs4 rw 0 0                         => peer1:/export /data nfs4
hosts     | //«win-7»/share /data cifs rw 0 0                        => //peer1/share /data
users     | «alice» ran it as uid=1000(«bob»), «bob»                 => user1 ran it as uid=1000(user2), user2
users     | «carol»:x:1000:1000::/home/«carol»:/bin/sh               => user2:x:1000:1000::/home/user2:/bin/sh
users     | mount -o username=«carol»                                => username=user2
paths     | /home/«carol»/«merger-plan»/«run.sh» «carol»             => /home/user2/path1 user2
paths     | /home/ubuntu/«merger-plan», ubuntu                       => /home/ubuntu/path1, ubuntu
addresses | inet «10.77.3.4»/16 «192.168.7.4» «172.20.0.4»           => inet 10.
addresses | peer «8.8.4.4»:53                                        => peer 198.1
addresses | inet6 «2001:db8:77::5»/64                                => ::5/64
addresses | fe80:0000:0000:0000:0c42:a1ff:«fe65:1234»                => fe80:0000:0000:0000:0c42:a1ff:fe
addresses | ::ffff:«10.77.3.4»                                       => ::ffff:10.
macs      | link/ether 0c:42:a1:«65:12:34» brd ff:ff:ff:ff:ff:ff     => ether 0c:42:a1:
serials   | Serial Number           : «1565020014800»            => Serial Number
serials   | index, serial\n0, «1565020014800»\n                      => index, serial
serials   | <serial>«1565020014800»</serial>                         => <serial>
serials   | {"id": 1, "serial": "«S5GXNF0R»"} nvme-SAMSUNG_«S5GXNF0R»: => nvme-SAMSUNG_
serials   | [SN] Serial number: «MT2226J24976»                       => [SN] Serial number:
serials   | usb 1-2: SerialNumber: «AC7710X93»                       => usb 1-2: SerialNumber:
serials   | Asset Tag: «INV0099812»  S/N «7S-9283742»                => Asset Tag:
serials   | Device Serial Number 0c-42-a1-ff-ff-«65-12-34»           => Number 0c-42-a1-ff-ff-
uuids     | GPU UUID : GPU-«925be680-6786-5653-edfc-0f1c7087259e»    => GPU UUID : GPU-
uuids     | /etc/machine-id\t«0123456789abcdef0123456789abcdef»      => machine-id
guids     | Port GUID: 0x0c42a10300«651234»                          => Port GUID: 0x0c42a10300
guids     | node_guid:\t0c42:a103:«0065:1234»                        => node_guid:\t0c42:a103:00
guids     | infiniband 00:00:10:29:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:«65:12:34» => 00:00:10:29:fe:80
tokens    | export X=«HF» «ghp_16C7e42F292c6912E7710c838347Ae178B4a» => export X=*** ***
tokens    | {"WANDB_API_KEY": "«3f1c9a7be2d845610c7e99aa04bd5512f8e6a001»"} => {"WANDB_API_KEY": "***"}
tokens    | python train.py --password «hunt3rTwo» --lr 3e-4         => --password *** --lr 3e-4
tokens    | {"password": "«two words»", "x": 1}                      => {"password": "***", "x": 1}
tokens    | https://«deploy:S3cretP4ss»@code.org/repo.git            => https://***@code.org/repo.git
tokens    | machine api.wandb.ai login user password «9b8a7c6d5e4f»  => ***
tokens    | AWS_SECRET_ACCESS_KEY=«wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY» => AWS_SECRET_ACCESS_KEY=***
keys      | -----BEGIN RSA PRIVATE KEY-----\n«KEY»\n«Ab1=»\n-----END RSA PRIVATE KEY-----\nnext => ***\nnext
keys      | -----BEGIN PRIVATE KEY-----\n«KEY»\nnext                 => ***\nnext
keys      | {"key": "-----BEGIN PRIVATE KEY-----\\n«KEY»\\n-----END PRIVATE KEY-----\\n", "x": 1} => "***\\n", "x": 1}
"""
MARKED = re.compile("«([^«»]+)»")
LINES = TABLE.replace("«HF»", f"«{HF}»").replace("«KEY»", f"«{KEY}»").strip().splitlines()
ROWS = [
    re.split(r" +\| +| +=> ", line.replace(r"\t", "\t").replace(r"\n", "\n").replace("\\\n", r"\n")) for line in LINES
]


def masked(text: str, error: str = "") -> str:
    masker = Masker(["gpu-a17", "gpu-b02"], users=["alice", "root"])
    recording = Recording("gpu-a17", {"text": Entry("text", ("cat", text), 0, text, error or text, 0.0)})
    masker.learn(recording)
    entry = masker.masked(recording).entries["text"]
    assert error or entry.stdout == entry.stderr == entry.argv[1]
    return entry.stdout


@pytest.mark.parametrize(("kind", "marked", "there"), ROWS, ids=[f"{row[0].strip()}-{n}" for n, row in enumerate(ROWS)])
def test_what_identifies_goes_and_the_rest_stays(kind: str, marked: str, there: str) -> None:
    found = masked(re.sub("[«»]", "", marked))
    assert [secret for secret in MARKED.findall(marked) if secret in found] == [] and there in found


@pytest.mark.parametrize(
    "text",
    [
        "0000:0f:00.0 PCI bridge: 00000000:0F:00.0",
        "driver 535.161.08 VBIOS 92.00.45.00.06 firmware 20.35.1012 InfoROM 1.0.0.0 0A.1B",
        "version: 5.8.2.0, fw 16.35.30.06, kernel 5.15.0-91-generic",
        "127.0.0.1 0.0.0.0 255.255.255.0 ff:ff:ff:ff:ff:ff 00:00:00:00:00:00 :: ::1 fe80::1 ff02::1",
        "33:33:00:00:00:01 0x0000000000000000 0xffffffffffffffff 0x00000000fee00000",
        "[   12.345678] up 12:34:56 on 2024-01-02T03:04:05 std::vector",
        "Serial Number : N/A\nCounter : 1234567890123456\nErrors: 65535\n/home/lost+found lost",
        "00000000-0000-0000-0000-000000000000 fe80:0000:0000:0000",
        "NVRM: Xid (PCI:0000:07:00): 79, pid=4711, GPU has fallen off the bus.",
    ],
)
def test_what_identifies_nobody_stays(text: str) -> None:
    assert masked(text) == text


def test_one_name_has_one_pseudonym_in_all_files_of_all_hosts(nodectl: Cli, tmp_path: Path) -> None:
    """What only the last host says goes from the first one, and what is planted is nowhere in the folder."""
    planted = re.sub("[«»]", "", "\n".join(row[1] for row in ROWS))
    for host, text in (("gpu-a17", "1565020014800 carol weird-name"), ("gpu-b02", planted)):
        (tmp_path / "plain" / host).mkdir(parents=True)
        (tmp_path / "plain" / host / "dmesg.out").write_text(text)
        (tmp_path / "plain" / host / "dmesg.err").write_text(text)
        index = [{"key": "dmesg", "argv": ["cat", text], "exit_status": 0}]
        (tmp_path / "plain" / host / "index.json").write_text(json.dumps(index))
    done = nodectl("--replay", str(tmp_path / "plain"), "record", "--mask", str(tmp_path / "shared"))
    folder = tmp_path / "shared"
    assert f"Masking is a help, not a guarantee: look through {folder} before you send it." in done.stderr
    whole = "\n".join(f"{path}\n{path.read_text()}" for path in folder.rglob("*") if path.is_file())
    whole = whole.replace(str(tmp_path), "")
    assert sorted({name for row in ROWS for name in MARKED.findall(row[1]) if len(name) > 5 and name in whole}) == []
    number, user, name = (folder / "host01" / "dmesg.out").read_text().split()
    last = (folder / "host02" / "dmesg.out").read_text()
    assert f"Serial Number           : {number}" in last and f"username={user}" in last and f"NodeName={name}" in last


def test_a_mac_its_guid_and_its_addresses_keep_belonging_together() -> None:
    text = "0c:42:a1:65:12:34 0x0c42a10300651234 fe80::e42:a1ff:fe65:1234 0c-42-a1-ff-ff-65-12-34"
    mac, guid, address, serial = masked(text).split()
    tail = mac[9:].replace(":", "")
    assert guid.endswith(tail) and serial.replace("-", "").endswith(tail)
    assert ipaddress.IPv6Address(address).packed[-3:].hex() == tail


def test_a_gid_keeps_belonging_to_its_ipv4_address() -> None:
    address, gid, other = masked("10.31.0.11 gids/2:0000:0000:0000:0000:0000:ffff:0a1f:000b ::ffff:0a1f:000b").split()
    assert gid.replace(":", "").endswith(ipaddress.IPv4Address(address).packed.hex())
    assert ipaddress.IPv6Address(other).ipv4_mapped == ipaddress.IPv4Address(address)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 254)), min_size=2, max_size=8, unique=True))
def test_neighbours_stay_neighbours(hosts: list[tuple[int, int]]) -> None:
    for net in ("10.77", "172.20", "198.51"):
        before = [f"{net}.{third}.{fourth}" for third, fourth in hosts]
        after = [Pseudonyms(b"key").of("ipv4", each) for each in before]
        assert len(set(after)) == len(before) and not set(after) & set(before)
        for prefix in (16, 24):
            assert _same_nets(before, prefix) == _same_nets(after, prefix)


def _same_nets(addresses: list[str], prefix: int) -> list[bool]:
    nets = [ipaddress.ip_network(f"{each}/{prefix}", strict=False) for each in addresses]
    return [a == b for a in nets for b in nets]


@pytest.mark.parametrize(
    "unit", ["\n", "a.", "Linux a-1 ", "10.1.1.1 a-1 ", "-----BEGIN PRIVATE KEY", "/home/a/", "::"]
)
def test_hostile_text_takes_time_by_its_length(unit: str) -> None:
    def seconds(count: int) -> float:
        started = time.process_time()
        masked(unit * count, error="-")
        return time.process_time() - started

    masked(unit * 10)
    # ten times the text; a hundred times the time would be by its square
    assert seconds(10_000) < 1.0 + 30 * seconds(1_000)


@pytest.mark.parametrize("name", sorted(bundled()))
def test_a_masked_recording_has_the_same_verdicts(nodectl: Cli, tmp_path: Path, name: str) -> None:
    nodectl("--replay", name, "record", "--mask", str(tmp_path / "masked"))
    before, after = (
        json.loads(nodectl("--replay", given, "health", "--all", "--output", "json", check=False).stdout)["findings"]
        for given in (name, str(tmp_path / "masked"))
    )
    assert before and [_verdict(each) for each in after] == [_verdict(each) for each in before]


def _verdict(finding: dict[str, str]) -> tuple[str, ...]:
    return finding["check"], finding["status"], finding["action"]


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
        filled = [Template.of(TEXTS).filled(f"node{n}") for n in range(300)]
        assert len({serials(each["q.out"]).pop() for each in filled}) == 300
        assert len({each["ib.out"].split()[0] for each in filled}) == 300
