"""Masking is by allow-list: of secrets in all places none is left, and what is left is read and judged as before."""

import json
import re
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from nodectl.errors import NodectlError
from nodectl.facts.parsers.catalogue import parser_of
from nodectl.model.recording import Entry, Recording
from nodectl.recordings.allowed import plain, vocabulary
from nodectl.recordings.folder import bundled
from nodectl.recordings.mask import Masker
from tests.conftest import Cli
from tests.facts.parsers.tool_outputs import TOOLS
from tests.lab.recorded_faults import RECORDED_FAULTS
from tests.lab.recorded_host import host_findings
from tests.recordings.test_mask import shape

# a line of each place, with its secrets between braces
PLACES = """
dmesg|[    0.000000] Linux version 6.8.0-1015-{acmecorp} ({mlopez}@{forge7.acme.io}) #16 SMP
dmesg|[    0.000000] Command line: root=/dev/md0 luks.key={Zx9QvT} rootpw={training} ip={gpu-x7}::eth0
dmesg|[    0.000000] Command line: inst.ks=https://{kick}:{S3cr3t-Pa55}@{boot.fra2.acme.io}/{tenant-blue}/ks.cfg?{sig4481}
dmesg|[    0.000000] Command line: adminpin={90417723} systemd.hostname={fra2-rack9-u17} vendor.magic={55512}
dmesg|[    1.100000] usb 1-2: SerialNumber: {AC7710X93}
dmesg|[    1.100000] usb 1-2: Product: {Keymaster} dongle of {Bluefin}
dmesg|[    1.300000] scsi 2:0:0:0: Direct-Access NETAPP LUN 9111 PQ: 0 ANSI: 5 sn {7S-9283742}
dmesg|[    1.400000] eth0: partner {5cf3.708b.1122} serial number {20551773}
bmc-log|   3 | 01/02/2026 | 10:11:12 | Memory #0x53 | Correctable ECC | Asserted | DIMM S/N {0x3A77B1C2}
dmesg|[    2.000000] systemd[1]: Hostname set to <{dgxq-31.fra2.acme.io}>.
dmesg|[    2.100000] DMI: Supermicro {ACMEBOX-9}/X13, asset {INV0099812}
dmesg|[    2.200000] Loaded X.509 cert '{Quantumbank} Secure Boot: {3a91ffe0bc77d1}'
dmesg|[   40.000000] nfs: server {filer09.vault.acme.io} not responding, still trying
dmesg|[   41.000000] nfs: server {storage} OK
dmesg|[   42.000000] CIFS: VFS: \\\\{winfs02}\\{Payroll$} Send error in SessSetup = -13
dmesg|[   43.000000] oom-kill: task=train_{falcon180},pid=77121,uid=1000
dmesg|[   44.000000] audit: op=login acct="{rmueller}" exe="/usr/bin/{hushtool}" addr=10.1.2.3
dmesg|[   45.000000] wireguard: {wgsecret}: key={aGVsbG8gd29ybGQ=}
dmesg|[   46.000000] NVRM: Xid (PCI:0000:07:00): 31, pid=4711, name={nightingale_train}, Ch 00000008
mounts|{fs-0ab12cd.efs.acme.io}:/{exports-ml} /mnt/{datalake} nfs4 rw,addr=10.3.2.1 0 0
mounts|{nas3}:/{vol7q} /data nfs rw,proto=tcp 0 0
mounts|//{smbhost}/{Finance2026} /mnt/x cifs rw,username={training},domain={node},password={model} 0 0
mounts|{teamdrive}:{bucket-eu} /mnt/y fuse.rclone rw,user_id=1001 0 0
mounts|{mdsprime}@tcp:/{lustrefs1} /scratch lustre rw 0 0
slurm-node|NodeName={dgxq-31} NodeAddr={dgxq-31.fra2} NodeHostName={dgxq-31} Owner={jvanderberg}(20551) State=DRAIN \
Partitions={skunkworks},debug Reason={fan of model} {ticket8812} [{opsjane}@2026-11-02T10:00:00]
slurm-node|NodeName={dgxq-31} Comment={rented by} {Globex} Extra={contract-551} ActiveFeatures={blackproject} State=IDLE
dmesg|[   47.000000] Geheim: 密码={阳光} пароль={Солнце} by {王伟}
dmesg|[   48.000000] Out of memory: Killed process 9 (python) total-vm:1kB, UID:{48213} pgtables:1kB oom_score_adj:0
mounts|{keeper}@{bastion9}:/home /mnt/ssh fuse.sshfs rw,user_id={48215},uid={48216} 0 0
processes|process D 4711 nfs_wait {payrolld}
listening|LISTEN 0 128 10.3.7.9:22 *:* users:(("{vaultd}",pid=1,fd=3))
nccl-conf|NCCL_SOCKET_IFNAME={trunkq}0
nccl-conf|NCCL_TOPO_FILE=/opt/{globexsoft}/{topo-secret}.xml
nccl-conf|MY_TOKEN={ghp_16C7e42F292c6912E7}
host-files|/etc/machine-id\t{93b2a6b3b2f6023922e3c82da836211e}
host-files|/etc/hosts\t10.3.2.9 {peerbox-18.fra2.acme.io} {storage} {vaultnode}  # {Globex} rack
host-files|/etc/profile.d/{acmesite}.sh\tNCCL_TOPO_FILE=/opt/{globexsoft}/{topo-secret}.xml
host-files|~/.bashrc\tLD_LIBRARY_PATH=/srv/{researchlab}/lib
deepspeed-hostfile|{peerbox-18} slots=8
deepspeed-config|{"wandb": {"team": "{heliosteam}", "api_key": "{4f1d9a22c0}", "password": "{two words}"}}
ip-address|[{"ifname":"eth0","ifalias":"uplink {leafsw-r12p3}","altnames":["{enxacme}"]}]
lspci-acs|        [V3] Vendor specific: {ACMEPO4471}
lspci-acs|        [YA] Asset tag: {TAG55192}
os-release|HOME_URL="https://{linux.acme.io}/"
units|failed {payroll-sync}.service
clock-sync|chrony {ntpmaster.acme.io}
dmesg|[   51.000000] ask +{49} {170} {5551234} or ({555}) {123}-{4567}, {0170}-{5559876}, {01705559876}
dmesg|[   52.000000] card {4111} {1111} {1111} {1111}; {4111111111111111} badge {48213} pin {9041} door {7734}
dmesg|[   53.000000] born {1984}-{03}-{12}, {12}.{03}.{1984}; seen at {52}.{5200066}, {13}.{4049540}
dmesg|[   54.000000] peer {3232235777} or {0xC0A80A01}, {3405803777}
dmesg|[   54.100000] fw {10.9.8.7} rev {192.168.44.7} driver {203.0.113.77}, version {10.3.2.1}
dmesg|[   54.200000] ext {555-0199} at {N48 8.23} {E11 34.57}, {48.1378} N, {11.5755} E, in rack {B12}
dmesg|[   54.300000] from {0300.0250.0.1} and {030052000001}, via {012.1.2.3}, call {555-0142}
processes|process D 4711 nfs_wait /srv/x --gw {0300.0250.0.1} # rack {B12}, ext. {555-0199}, {S33 52.1} {W70 40.25}
dmesg|[   55.000000] su: {jk} by {u4711} for {Grace} {Mueller}
host-files|/etc/hosts\t10.77.1.9 x  # {Grace} {Oberhuber} ext {7734}, {04.07.76}
host-files|/etc/nccl.conf\t# rack key {48213}, call {01705551234}
processes|process D 4711 nfs_wait /srv/users/{jk}/run.sh
units|failed at {52.5200} N, {13.4049} E
ip-address|address {192.168.77.9} is {3232255241} and {C0A84D09} and {0x094DA8C0}
venv|venv /srv/{researchlab}/venv
df|/home/{training}/.local/state/nodectl
torch-import|NODECTL {"error": "cannot open /home/{kowalski}/x: proxy=http://{proxyq}:3128 by user {worker}"}
processes|process Z 12 exit python --api-key {sk-live-8812} --user {owner} -H 'Authorization: Bearer {eyJhbGciOi}'
"""
MARK = re.compile(r"\{([^{}\":]+)\}")
# words that nodectl speaks of, too: gone where they stand for a secret
SPOKEN = {"training", "storage", "node", "model", "owner", "worker", "two words"}


def planted() -> Iterator[tuple[str, str, list[str]]]:
    for line in PLACES.replace("\\\n", "").strip().splitlines():
        key, text = line.split("|", 1)
        yield key, MARK.sub(r"\1", text), MARK.findall(text)


ROWS = list(planted())
SECRETS = sorted({secret for _, _, secrets in ROWS for secret in secrets})


def masked(text: str) -> str:
    entry = Entry("text", ("cat", "text"), 0, text, text, 0.0)
    done = Masker(["dgxq-31"]).masked(Recording("dgxq-31", {"text": entry})).entries["text"]
    assert done.stdout == done.stderr
    return done.stdout


def test_there_are_sixty_secrets() -> None:
    assert len(SECRETS) >= 60


@pytest.mark.parametrize(("key", "text", "secrets"), ROWS, ids=[f"{key}-{n}" for n, (key, _, _) in enumerate(ROWS)])
def test_no_secret_is_left_in_its_line(key: str, text: str, secrets: list[str]) -> None:
    # a pseudonym is random, and may have the two digits of a day by chance; what leaks does so each time
    found, *more = (masked(text) for _ in range(4))
    forms = [(secret, re.compile(rf"(?<!\w){re.escape(secret)}(?!\w)")) for secret in secrets]
    assert [secret for secret, form in forms if all(form.search(each) for each in (found, *more))] == [], found
    assert len(found.split("\n")) == 1
    # no half of a name, either
    words = {
        word for secret in secrets for word in re.findall(r"[A-Za-z]{3,}", secret) if plain(word) not in vocabulary()
    }
    assert [word for word in words if word.lower() in found.lower()] == [], found


def test_none_is_left_in_a_recording_that_was_saved(nodectl: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "plain" / "dgxq-31"
    folder.mkdir(parents=True)
    for key in {key for key, _, _ in ROWS}:
        (folder / f"{key}.out").write_text("\n".join(text for own, text, _ in ROWS if own == key) + "\n")
    argv = ["cat", "/home/kowalski/x", "--password", "S3cr3t-Pa55"]
    index = [{"key": key, "argv": argv, "exit_status": 0} for key in {key for key, _, _ in ROWS}]
    (folder / "index.json").write_text(json.dumps(index))
    about = {"schema": "nodectl.recording/1", "name": "heliosteam", "hardware": "globexsoft"}
    (tmp_path / "plain" / "recording.yml").write_text(json.dumps(about))
    nodectl("--replay", str(tmp_path / "plain"), "record", "--mask", str(tmp_path / "shared"))
    whole = "\n".join(f"{path.name}\n{path.read_text()}" for path in (tmp_path / "shared").rglob("*") if path.is_file())
    # what is shorter stands in any text by chance: its line is looked at alone, above
    long = [secret for secret in SECRETS if secret not in SPOKEN and len(secret) > 5]
    assert len(long) > 40 and [secret for secret in long if secret in whole] == []


@pytest.mark.parametrize("unit", ["\n", "Reason=", "\\", "+1 ", "Ab ", "[1.0] 12345 ", "::"])
def test_hostile_text_takes_time_by_its_length(unit: str) -> None:
    def seconds(count: int) -> float:
        started = time.process_time()
        masked(unit * count)
        return time.process_time() - started

    masked(unit * 10)
    # ten times the text; a hundred times the time would be by its square
    assert seconds(10_000) < 1.0 + 30 * seconds(1_000)


def test_a_word_is_the_same_in_all_places_and_case_and_prefix_stay() -> None:
    one, two, three, whole = masked("trunkq0 trunkq1 Trunkq a-trunkq-b").split()
    assert one[:-1] == two[:-1] == three.lower() and (one[-1], two[-1]) == ("0", "1")
    assert three[0].isupper() and one[:-1] in whole


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:07:00): 79, pid=4711, GPU has fallen off the bus.",
        "mlx5_core 0000:0c:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
        "GPU0 NV12 SYS enp226s0f0np0 ens4f1np1 mlx5_11 5.15.0-157-generic 580.95.05-0ubuntu1 12.8.90",
        "net/ipv4/tcp_rmem - 4096 131072 6291456 0-63,128-191 2026-09-27T08:00:12",
        "[   12.3] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30, pid=4711, fw version 218.0.166.0",
        "\x1b[4mGPU0\x1b[0m \\n \\040 C:\\t",
    ],
)
def test_a_known_form_stays(text: str) -> None:
    assert masked(text) == text


# values of broken devices and cells that grew together are masked like words that nobody knows
_NOT_READ_MASKED = {"driver-390-faults", "glued", "err.server-killed-midrun.client"}
_OUTPUTS = sorted(path for path in TOOLS.rglob("*.txt") if path.stem not in _NOT_READ_MASKED)


@pytest.mark.parametrize("path", _OUTPUTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_each_parser_reads_what_is_masked(path: Path) -> None:
    parse, text = parser_of(path.parent.name), path.read_text(errors="replace")
    try:
        before = parse(text)
    except NodectlError:
        pytest.skip("an output that is refused")
    assert shape(parse(masked(text))) == shape(before)


@cache
def _masker() -> Masker:
    return Masker(["node01"])


def _plain(recording: Recording) -> Recording:
    return recording


def _judged(name: str, *kinds: str, mask: bool = False) -> list[tuple[str, str, str]]:
    found = host_findings(name, kinds, _masker().masked if mask else _plain)
    return sorted((each.check, str(each.status), each.action) for each in found)


@pytest.mark.parametrize("name", sorted(bundled()))
def test_a_masked_healthy_host_is_judged_the_same(name: str) -> None:
    assert _judged(name, mask=True) == _judged(name)


# a clone needs another host to be one of
KINDS = sorted(kind for kind, fault in RECORDED_FAULTS.items() if not fault.takes_two)


# a masked host is judged in 0.2 s, most of which all kinds have in common: every sixteenth runs in the gate
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if at % 16 else ()) for at, kind in enumerate(KINDS)]
)
def test_a_masked_fault_is_judged_the_same(kind: str) -> None:
    assert _judged("dgx-a100", kind, mask=True) == _judged("dgx-a100", kind)
