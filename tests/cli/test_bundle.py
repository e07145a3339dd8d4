"""`nodectl ledger bundle`: what a vendor asks for is in it, and no secret."""

import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodectl.cli import evidence as keeping
from nodectl.cli.app import App
from nodectl.cli.evidence import take
from nodectl.common.files import folder_name
from nodectl.common.paths import state_dir
from nodectl.common.resources import recordings_dir
from nodectl.errors import UsageError
from nodectl.ledger.bundle import evidence
from nodectl.ledger.bundle.archive import TOP
from nodectl.ledger.history.database import FILE
from nodectl.ledger.store import Ledger
from nodectl.model.finding import Finding, traces_first
from nodectl.model.recording import Recording
from nodectl.model.status import Status
from nodectl.recordings.folder import read_host
from nodectl.recordings.source import LiveSource
from tests.ledger.kept import parts

Asked = Callable[..., Any]
DEAD = "0000:4e:00"
XID = f"<4>[1296000.125] NVRM: Xid (PCI:{DEAD}): 79, pid=19174, name=python3, GPU has fallen off the bus.\n"
SERIAL, UUID = "1565020014911", "GPU-d73ea14f-6def-df4a-3f05-d6d13406a09f"
# of each line what stands between the marks is a secret
LINES = """
export WANDB_API_KEY=«3f1c9a7be2d845610c7e99aa04bd5512f8e6a001»
WANDB_API_KEY: «local-9d1e77c0b2»
HF_TOKEN=«hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456»
HUGGING_FACE_HUB_TOKEN="«hf_ZyXwVuTsRqPoNmLkJiHgFeDcBa987654»"
"HUGGINGFACE_TOKEN": "«hf_QqWwEeRrTtYyUuIiOoPpAaSsDdFfGgHh»",
AWS_ACCESS_KEY_ID=«AKIAIOSFODNN7EXAMPL3»
AWS_SECRET_ACCESS_KEY=«wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY»
AWS_SESSION_TOKEN=«FwoGZXIvYXdzEBYaDKx+9Q/zz8=»
aws_secret_access_key = «uJ7sLq0+Zk4/PpQ2rT5vWx8yB1nM3cF6dG9hK0jL»
NGC_API_KEY=«nvapi-Jd83kLmQpR7sTuVwXyZ_0123456789abcdefABCDEFGHIJ-kl»
NGC_CLI_API_KEY=«bm9kZWN0bC1zZWNyZXQtbmdjLWtleQ»
docker login nvcr.io -u '$oauthtoken' -p «Zmx1ZmZ5LWJ1bm55LWtleQ9s»
OPENAI_API_KEY=«sk-proj-Qm4Vt9xZb2NcKj7LhGf5Ds3Ap1Oi8Uy6»
ANTHROPIC_API_KEY=«sk-ant-api03-Rt5Yh7Uj9Ik2Ol4Pm6Nb8»
GITHUB_TOKEN=«ghp_16C7e42F292c6912E7710c838347Ae178B4a»
remote: https://«x-access-token:gho_9Ks8Dj7Fh6Gg5Hf4Jd3Ks2La1Zm0»@git.example.org/a.git
git+https://«deploy:S3cretP4ss»@code.acme.io/team/repo.git
https_proxy=http://«proxyuser:pr0xyP4ssw0rd»@proxy.acme.io:3128
postgresql://«trainer:Tr41n3rDB»@db.acme.io:5432/runs
mongodb+srv://«mlops:m0ng0Pa55»@cluster0.acme.mongodb.net/
redis://:«r3d1sOnlyPass»@cache01.acme.io:6379/0
amqp://«rabbit:b1gRabb1t»@mq.acme.io/%2f
s3://«AKIA2222333344445555:Vt7yUm3nBq9w»@bucket/data
smb://«fileuser:Sm8Pa55»@nas.acme.io/share
ftp://«ftpjoe:l0bster99»@10.9.8.7/pub
//«winfs07.acme.io»/finance /mnt cifs username=«svc_cifs77»,password=«C1fsPa55w0rd»,rw 0 0
curl -H 'Authorization: Bearer «eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.dBjftJeZ4CVPmB92K27u»' https://api
curl -u «jane:j4n3sPass» https://registry.acme.io/v2/
Authorization: Basic «amFuZTpqNG4zc1Bhc3M=»
Proxy-Authorization: Basic «cHJveHk6cHdkMTIz»
Cookie: session=«9f8e7d6c5b4a3Q2w1e0r»
X-Api-Key: «zQ5xW7cV9bN2mK4j»
X-Auth-Token: «gAAAAABkT0k3nF0r0p3nSt4ck»
python train.py --password «hunt3rTwo!» --lr 3e-4
python train.py --api-key=«k8Jq2Lw9Zx4Cv7Bn» --token «tok3nInArgv55»
mysql -u root -p«MyR00tPa55» -h db7
mysql --password=«MyOth3rPa55» prod
sshpass -p «sshP4ssInArgv» ssh node7
PGPASSWORD=«pgS3cretEnv1» psql -h db
MYSQL_PWD=«mysqlS3cretEnv2» mysqldump
SSHPASS=«sshpassS3cretEnv» sshpass -e ssh node7
RESTIC_PASSWORD=«r3st1cRepoPass»
BORG_PASSPHRASE='«b0rg phrase Kx9»'
ANSIBLE_BECOME_PASS=«b3comeAnsible8»
ansible_ssh_pass: «ans1bleSsh99»
VAULT_TOKEN=«hvs.CAESIJ8kLmNoPqRsTuVw»
CONSUL_HTTP_TOKEN=«b1gs9033-beef-cafe-babe-0a1b2c3d4e5f»
SLACK_WEBHOOK=https://hooks.slack.com/services/«T0AAAA1B2/B0CCCC3D4/xYz9WvU8tSr7QpO6nMl5»
SLACK_BOT_TOKEN=«xoxb-111122223333-444455556666-AbCdEfGh»
TELEGRAM=https://api.telegram.org/bot«987654321:AAFxYz-QwErTyUiOpAsDf»/sendMessage
GOOGLE_API_KEY=«AIzaSyD4f5g6h7J8k9L0q1W2e3R4t5Y6u7I8o9p»
"private_key_id": "«0fa1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3»",
"private_key": "-----BEGIN PRIVATE KEY-----\\n«MIIEvQIBADANBgkqhkiG9w0BAQEFAASC»\\n-----END PRIVATE KEY-----\\n",
"client_secret": "«GOCSPX-Qz7Xv5Cb3Nm1Lk9Jh»"
"refresh_token": "«1//0gQz7Xv5Cb3Nm1Lk9Jh»"
AZURE_STORAGE_KEY=«Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq»
AccountName=acmestore;AccountKey=«k3yOfAcc0unt+slash/==»;EndpointSuffix=core
SharedAccessSignature=sv=2024&sig=«pQ7rS9tU1vW3xY5zA7bC»&se=2027
client-key-data: «LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlF»
client-certificate-data: «LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t»
certificate-authority-data: «LS0tLS1CRUdJTiBDQS0tLS0tTUlJQw»
    token: «eyJhbGciOiJSUzI1NiIsImtpZCI6Ikt1YmUifQ»
    password: «kub3Pa55w0rd»
users: [{name: «kube-admin-zoe», user: {token: «kubeadm.t0k3n1234»}}]
kubeadm join 10.7.7.7:6443 --token «abcdef.0123456789zyxwvu»
kubeadm join --discovery-token-ca-cert-hash sha256:«9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08»
"auths": {"nvcr.io": {"auth": "«JG9hdXRodG9rZW46bnZhcGktYWJj»"}}
//registry.npmjs.org/:_authToken=«npm_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8»
machine api.wandb.ai login user password «9b8a7c6d5e4f30211203f4e5d6c7a8b9»
default login anonymous password «netrcD3fault»
munge key: «7f3c1e9b 44d08a62 c1b7e5f0 9a8d2c33»
slurm.key: «7f3c 1e9b 44d0 8a62 c1b7 e5f0 9a8d 2c33»
00000000: «7f3c 1e9b 44d0 8a62 c1b7 e5f0 9a8d 2c33»  .x..D.
munge.key «bXVuZ2VrZXlieXRlcw0K»
AuthInfo=jwt_key=/etc/slurm/«jwtQ7.key»
SlurmUser=slurm JwtKey=«slurmJwtS3cret»
SLURM_JWT=«eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.sLuRm»
StoragePass=«slurmdbdPa55»
AccountingStoragePass=«acctSt0ragePa55»
options nvidia NVreg_LicenseKey=«lic-77Kq-Zx12»
options wlan psk=«wpaPreShared77»
Command line: root=/dev/md0 luks.key=«luksKeyMat3rial» rd.password=«b00tPa55»
kernel: «Zq8vKx» wireguard PrivateKey = «yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=»
PresharedKey = «FpCyhws9cxwWoV4xELtfJvjJN+zQVRPISllRWgeopVE=»
-----BEGIN OPENSSH PRIVATE KEY-----
«b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gt»
-----END OPENSSH PRIVATE KEY-----
ssh-ed25519 «AAAAC3NzaC1lZDI1NTE5AAAAIKq7Zx9Lw2Vb4Nm6Jh8Gf0Ds1Ap3Oi5Uy7Tr9» «rita@wks-77»
AGE-SECRET-KEY-«1QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQQPZRY»
privateExponent: «5a:31:c7:9e:02:bb:4d:f1:88:16:7c:e3:90:2a:5f:d4»
    00:«b1:7f:33:9d:ce:41:aa:02:59:e6:8c:17:f0:3b:d5:64:92»
root:$6$«rounds5Qx$Vn8mJk2LpQ9wErTyUiOpAsDfGhJkZxCv»:19000:0:99999:7:::
enable secret 5 $1$«mERr$hx5rVt7rPNoS4wqbXKX7m0»
snmp-server community «publ1cButSecret» ro
pin «48213377» badge «9041882»
IPMI_PASSWORD=«1pmiPa55»; ipmitool -I lanplus -H 10.1.1.9 -U «bmcadmin7» -P «bmcPa55w0rd» sel list
su: «klaus.brandauer» by «m.streep» from «client-9.fra2.acme.io»
home /home/«evelyn7»/run.sh on «gpu-x7.fra2.acme.io» for tenant=«bluefin-capital»
mlflow: MLFLOW_TRACKING_PASSWORD=«mlfl0wTrack»; COMET_API_KEY=«c0metQw8Er7Ty6Ui5»
JUPYTER_TOKEN=«4c1d9e0f77aa55bb33cc»; http://host:8888/?token=«8d7c6b5a4f3e2d1c0b9a88776655443322110011»
CLEARML_API_SECRET_KEY=«Cl34rMlS3cretQ»; NEPTUNE_API_TOKEN=«eyJhcGlfYWRkcmVzcyI6Imh0»
DD_API_KEY=«d4t4d0g9f8e7d6c5b4a3» SENTRY_DSN=https://«0123abcd4567efgh»@sentry.acme.io/42
«alice.wonder@bluefin.example» mailed «+49 170 5551234»
"""
MARKED = re.compile("«([^«»]+)»")
SECRETS = MARKED.findall(LINES)
PLAIN = re.sub("[«»]", "", LINES)


@pytest.fixture
def asked(nodectl: Asked, tmp_path: Path) -> Asked:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    return lambda *args, **more: nodectl(*args, **{"env": env, "check": False, **more})


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    """The recorded DGX A100 with a GPU that has fallen off the bus."""
    folder = tmp_path / "dead"
    shutil.copytree(recordings_dir() / "dgx-a100", folder)
    log = folder / "node01" / "dmesg.out"
    log.write_text(log.read_text() + XID)
    return folder


def planted(folder: Path) -> None:
    """Plant all lines into all files: outputs, complaints, command lines, the recording's own document."""
    host = folder / "node01"
    for path in host.glob("*.out"):
        path.write_text(path.read_text() + PLAIN)
        path.with_suffix(".err").write_text(PLAIN)
    index = json.loads((host / "index.json").read_text())
    for row in index:
        row["argv"] += [
            word for line in PLAIN.splitlines() if " -" in line for word in line.split()
        ] + PLAIN.splitlines()
    (host / "index.json").write_text(json.dumps(index))
    (host / "nvidia-bug-report.out").write_text(f"____\n\nStart of NVIDIA bug report log file.\n{PLAIN}")


def files_of(archive: Path | bytes) -> dict[str, str]:
    """All files by name, those that are packed within it unpacked, too."""
    stream = io.BytesIO(archive if isinstance(archive, bytes) else archive.read_bytes())
    with tarfile.open(fileobj=stream, mode="r:gz") as opened:
        found = {member.name: opened.extractfile(member) for member in opened}
        files = {name: data.read() for name, data in found.items() if data is not None}
    return {name: (gzip.decompress(data) if name.endswith(".gz") else data).decode() for name, data in files.items()}


def form_of(files: Mapping[str, str]) -> str:
    return files[f"{TOP}/form.txt"]


def leaks(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    whole = {name: f"{name}\n{text}" for name, text in files.items()}
    for secret in SECRETS:
        # the parts of a secret that a mask might leave: what has letters and digits mixed is no word
        parts = [part for part in re.findall(r"[A-Za-z0-9]{8,}", secret) if re.search(r"[0-9]", part)]
        for piece in dict.fromkeys([secret, *parts]):
            yield from ((piece, name) for name, text in whole.items() if piece in text)


def test_no_secret_of_a_hundred_leaves(asked: Asked, dead: Path, tmp_path: Path) -> None:
    assert len(SECRETS) > 100
    planted(dead)
    done = asked("--replay", str(dead), "ledger", "bundle", "node01", "--into", str(tmp_path / "b.tgz"))
    assert done.returncode == 0, done.stderr
    files = files_of(tmp_path / "b.tgz")
    assert f"{TOP}/now/host01/nvidia-bug-report.log.gz" in files
    assert sorted(set(leaks(files))) == []


def test_the_form_has_what_a_vendor_asks_for(asked: Asked, dead: Path, tmp_path: Path) -> None:
    planted(dead)
    asked("--replay", str(dead), "ledger", "bundle", "node01", "--into", str(tmp_path / "b.tgz"), check=True)
    form = form_of(files_of(tmp_path / "b.tgz"))
    rows = dict(line.split(": ", 1) for line in form.splitlines() if ": " in line)
    wanted = {
        "System model": "NVIDIA DGXA100 920-23687-2530-000",
        "System serial number": "1570920000417",
        "BIOS": "1.25, 11/08/2023",
        "OS": "Ubuntu 22.04.5 LTS",
        "Kernel": "5.15.0-157-generic x86_64",
        "Driver": "580.95.05 (open)",
        "CUDA of the driver": "13.0",
        "CUDA toolkit": "12.8.90",
        "GPU name": "NVIDIA A100-SXM4-80GB",
        "GPU part number": "20B2-895-A1",
        "Board part number": "692-2G506-0212-002",
        "VBIOS": "92.00.45.00.03",
        "Serial number": SERIAL,
        "UUID": UUID,
        "PCI bus id": "0000:4E:00.0",
        "ECC errors, volatile": "correctable 0, uncorrectable 0",
        "Remapped rows": "correctable 0, uncorrectable 0, pending no, failure no",
        "NVLink": "12 of 12 links active; no errors counted",
        "First seen": "2026-10-12T07:59:20Z",
    }
    assert {name: rows.get(name) for name in wanted} == wanted
    assert "1 time, at 2026-10-12T07:59:20Z" in rows[f"Xid 79 on {DEAD}"]
    assert "memtest passed" in rows["dcgmi diag, last results"]
    assert UUID in rows["Description"] and "fallen off the bus" in rows["Description"]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The fleet of `-i`, of which nobody answers; its state is that of `asked`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(
        "[all]\nnode01 ansible_host=127.0.0.1 ansible_port=1\nnode02 ansible_host=127.0.0.1 ansible_port=1\n"
    )
    return str(inventory)


def look(dead: Path, edit: Callable[[str, str], str] = lambda _, text: text) -> Recording:
    recording = read_host(dead / "node01", "node01", "dead")
    entries = {key: replace(entry, stdout=edit(key, entry.stdout)) for key, entry in recording.entries.items()}
    return replace(recording, entries=entries, recorded=None)


LOST = Finding("node01", "xid", Status.FAILED, f"Xid 79 {DEAD}", "reboot", actual="fallen", remedy="reboot the node")


def test_a_dead_host_has_what_was_kept_of_it(asked: Asked, dead: Path, fleet: str, tmp_path: Path) -> None:
    assert evidence.keep(fleet, look(dead), [traces_first(LOST)]) is not None
    done = asked("-i", fleet, "--output", "json", "ledger", "bundle", "node01", "--into", str(tmp_path / "b.tgz"))
    assert done.returncode == 3
    told = json.loads(done.stdout)
    assert (told["schema"], told["answered"], told["before"]) == ("nodectl.ledger-bundle/1", False, 1)
    files = files_of(tmp_path / "b.tgz")
    assert f"{TOP}/before/1/host01/nvidia-smi-q.out" in files and not any("/now/" in name for name in files)
    form = form_of(files)
    assert "The host did not answer" in form and SERIAL in form and "Xid 79" in form
    assert (tmp_path / "b.tgz").stat().st_mode & 0o777 == 0o600


def test_of_a_host_of_which_nothing_is_known_nothing_is_written(asked: Asked, fleet: str, tmp_path: Path) -> None:
    done = asked("-i", fleet, "ledger", "bundle", "node02", "--into", str(tmp_path / "b.tgz"))
    assert done.returncode == 3 and "nothing was kept of it" in done.stderr and not (tmp_path / "b.tgz").exists()


def test_a_part_that_moved_is_asked_for_where_it_is(asked: Asked, fleet: str, tmp_path: Path) -> None:
    first, second = parts("dgx-a100", "node01"), parts("dgx-a100", "node02")
    moved = first[2]
    with Ledger(state_dir() / FILE, fleet) as kept:
        kept.saw("node01", first, 1000.0)
        kept.cordon("node01", first, "fan; token=S3cretReason77 of acmecorp", "rita7@wks-77", when=1500.0)
        kept.saw("node02", [*second[:2], replace(moved, host="node02", place=second[2].place), *second[3:]], 2000.0)
    for word in (moved.id[4:].upper(), moved.serial):
        done = asked("-i", fleet, "--output", "json", "ledger", "bundle", word, "--into", str(tmp_path / "b.tgz"))
        assert done.returncode == 3 and json.loads(done.stdout)["host"] == "node02", done.stderr
    files = files_of(tmp_path / "b.tgz")
    form = form_of(files)
    whole = "".join(files.values())
    assert not [secret for secret in ("S3cretReason77", "acmecorp", "rita7", "wks-77") if secret in whole]
    assert "moved: seen in" in form and moved.id in form and moved.serial in form and moved.model in form
    assert not [other.id for other in second if other.kind == "nic" and other.id in whole]


def test_what_was_kept_is_before_and_a_reboot_between_is_told(
    asked: Asked, dead: Path, fleet: str, tmp_path: Path
) -> None:
    boot = "11111111-2222-3333-4444-555555555555"
    earlier = look(dead, lambda key, text: boot + text[36:] if key == "boot" else text)
    assert evidence.keep(fleet, replace(earlier, time=(earlier.time or 0) - 5000), [traces_first(LOST)])
    asked("-i", fleet, "--replay", str(dead), "ledger", "bundle", UUID, "--into", str(tmp_path / "b.tgz"), check=True)
    files = files_of(tmp_path / "b.tgz")
    assert {name.split("/")[1] for name in files} >= {"now", "before"}
    assert "rebooted, at about" in form_of(files) and "Xid 79" in form_of(files)


def test_evidence_is_kept_once_for_a_finding_and_four_times_at_most(dead: Path, fleet: str) -> None:
    first, lost = look(dead), traces_first(LOST)
    assert evidence.keep(fleet, first, [replace(LOST, action="none", remedy="wait")]) is None
    assert evidence.keep(fleet, first, [lost]) is not None and evidence.keep(fleet, first, [lost]) is None
    places = [evidence.keep(fleet, first, [replace(lost, actual=f"{number} times")]) for number in range(6)]
    assert all(places) and len(evidence.kept(fleet, "node01")) == 4
    newest = evidence.kept(fleet, "node01")[0]
    assert "5 times" in newest.reasons[0] and newest.recording.entries["boot"].stdout == first.entries["boot"].stdout
    assert places[-1] is not None and {path.stat().st_mode & 0o077 for path in places[-1].rglob("*")} == {0}
    assert evidence.kept(fleet, "node02") == () == evidence.kept("another", "node01")


def test_who_is_asked_for_evidence_keeps_it(dead: Path, fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    app = App.create(inventory=(fleet,), limit=None, replay=str(dead), output=None, forks=None)
    source = app.source
    take(app, source, source.hosts, [traces_first(LOST), replace(LOST, host="node02", remedy="wait", action="none")])
    (found,) = evidence.kept(app.fleet, "node01")
    assert "Xid 79" in found.reasons[0] and "fallen off" in found.recording.entries["dmesg"].stdout
    assert "evidence is kept before a reset" in capsys.readouterr().err
    take(app, source, source.hosts, [traces_first(replace(LOST, host="node02"))])
    assert "node02: its evidence is not kept" in capsys.readouterr().err


def test_a_full_disk_leaves_no_half(asked: Asked, dead: Path, fleet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(evidence, "write_host", full)
    with pytest.raises(OSError, match="No space"):
        evidence.keep(fleet, look(dead), [traces_first(LOST)])
    assert [
        path for path in (state_dir() / "evidence").rglob("*") if path.name != path.parent.name and path.is_file()
    ] == []


@pytest.mark.parametrize("place", ["/dev/full", "missing/b.tgz"])
def test_where_nothing_can_be_written_it_is_said(asked: Asked, dead: Path, tmp_path: Path, place: str) -> None:
    into = place if place.startswith("/") else str(tmp_path / place)
    done = asked("--replay", str(dead), "ledger", "bundle", "node01", "--into", into)
    assert done.returncode == 2 and "--into" in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.tgz"))


def test_a_dash_is_standard_output(asked: Asked, dead: Path, nodectl: Asked, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "nodectl", "--replay", str(dead), "ledger", "bundle", "node01", "--into", "-"]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(argv, capture_output=True, check=True, env=env, cwd=tmp_path)
    assert UUID in form_of(files_of(done.stdout)) and not list(tmp_path.glob("-"))


@pytest.mark.parametrize("name", ["../../etc", "-", "x" * 5000, ""])
def test_a_name_that_nobody_has_is_refused(asked: Asked, dead: Path, name: str) -> None:
    done = asked("--replay", str(dead), "ledger", "bundle", "--", name)
    assert done.returncode == 2 and "Traceback" not in done.stderr and not list(Path.cwd().glob("nodectl-bundle*"))


@pytest.mark.parametrize("name", ["/etc/passwd", "-rf", "a b\n\x1b[31m"])
def test_a_host_of_any_name_is_in_the_archive_under_none(asked: Asked, dead: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "odd" / folder_name(name)
    shutil.copytree(dead / "node01", folder)
    done = asked("--replay", str(folder.parent), "ledger", "bundle", "--into", str(tmp_path / "b.tgz"), "--", name)
    assert done.returncode == 0, done.stderr
    files = files_of(tmp_path / "b.tgz")
    assert {name.split("/")[2] for name in files if "/now/" in name} == {"host01", "recording.yml"}
    assert not [text for text in files.values() if name in text and len(name) > 3]


def test_outputs_of_any_size_are_cut(asked: Asked, dead: Path, tmp_path: Path) -> None:
    log = dead / "node01" / "dmesg.out"
    line = "<6>[ 1000.5] usb 1-2: something token=S3cretAtTheCut77 repeats\n"
    log.write_text(log.read_text() + line * 80_000 + XID)
    (dead / "node01" / "units.out").write_text("z" * 5_000_000)
    done = asked("--replay", str(dead), "ledger", "bundle", "node01", "--into", str(tmp_path / "b.tgz"), timeout=300)
    assert done.returncode == 0, done.stderr
    files = files_of(tmp_path / "b.tgz")
    cut = files[f"{TOP}/now/host01/dmesg.out"]
    assert len(cut) < 2_200_000 and "are left out here" in cut and "fallen off the bus" in cut
    assert sum(map(len, files.values())) < 5_000_000 and not [1 for text in files.values() if "S3cretAtTheCut" in text]


@pytest.mark.skipif(os.geteuid() != 0, reason="NVIDIA's report is for root")
def test_the_report_of_nvidia_is_taken_masked_and_its_folder_removed(asked: Asked, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "nvidia-bug-report.sh"
    tool.parent.mkdir()
    said = (
        "Start of NVIDIA bug report log file\\nWANDB_API_KEY=3f1c9a7be2d845610c7e99aa\\nGPU has fallen off the bus\\n"
    )
    asks = '[ "$*" = "--safe-mode --output-file report.log" ] || exit 1'
    tool.write_text(f'#!/bin/sh\n{asks}\nprintf "{said}" | gzip > report.log.gz\n')
    tool.chmod(0o755)
    boxes = tmp_path / "state" / "nodectl" / "jobs" / "j1" / "black_box"
    boxes.mkdir(parents=True)
    for name, xids in (("1.end", ["NVRM: Xid 79"]), ("2.end", []), ("3.suspicion", ["NVRM: Xid 79"])):
        (boxes / f"{name}.jsonl").write_text(json.dumps({"attempt": name, "xids": xids}) + "\n")
    before = set(Path("/dev/shm").glob("nodectl.*"))
    env = {"XDG_STATE_HOME": str(tmp_path / "state"), "PATH": f"{tool.parent}:{os.environ['PATH']}"}
    done = asked("-i", "localhost", "ledger", "bundle", "localhost", "--into", str(tmp_path / "b.tgz"), env=env)
    assert done.returncode == 0, done.stderr
    files = files_of(tmp_path / "b.tgz")
    report = files[f"{TOP}/now/host01/nvidia-bug-report.log.gz"]
    assert "fallen off the bus" in report and "3f1c9a7be2d8" not in report
    assert set(Path("/dev/shm").glob("nodectl.*")) <= before
    taken = files[f"{TOP}/now/host01/black-boxes.out"]
    assert '"1.end"' in taken and "2.end" not in taken and "suspicion" not in taken


def test_a_gpu_that_nobody_saw_is_told_by_its_place(asked: Asked, dead: Path, tmp_path: Path) -> None:
    host = dead / "node01"
    for path in host.glob("nvidia-smi-*.out"):
        path.write_text("Unable to determine the device handle for GPU0000:4E:00.0: Unknown Error\n")
    asked("--replay", str(dead), "ledger", "bundle", "node01", "--into", str(tmp_path / "b.tgz"), check=True)
    form = form_of(files_of(tmp_path / "b.tgz"))
    assert "PCI bus id: 0000:4e:00.0\nUUID: unknown\nSerial number: unknown\n" in form and "GPU 1 OF 1\n" in form


def test_before_a_reboot_provision_keeps_what_it_would_end(
    dead: Path, fleet: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App.create(inventory=(fleet,), limit=None, replay=None, output=None, forks=None)
    hosts = app.inventory.hosts(None)
    monkeypatch.setattr(keeping, "look_at", lambda *_: lambda hosts: [traces_first(LOST)])
    monkeypatch.setattr(LiveSource, "one", lambda *_: look(dead))
    keeping.keep_evidence(app, hosts)
    assert len(evidence.kept(app.fleet, "node01")) == 1 and evidence.kept(app.fleet, "node02") == ()

    def broken(*_: object) -> None:
        raise UsageError("no profile", "name one")

    monkeypatch.setattr(keeping, "look_at", broken)
    keeping.keep_evidence(app, hosts)
    assert "no evidence is kept before a reboot" in capsys.readouterr().err
