"""No secret of a hundred, planted in every file of a recording, leaves in a masked one."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

from nodectl.common.resources import recordings_dir

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


def _planted(folder: Path) -> None:
    """Plant all lines into all files: outputs, complaints, command lines."""
    for path in folder.glob("*.out"):
        path.write_text(path.read_text() + PLAIN)
        path.with_suffix(".err").write_text(PLAIN)
    index = json.loads((folder / "index.json").read_text())
    for row in index:
        row["argv"] += [
            word for line in PLAIN.splitlines() if " -" in line for word in line.split()
        ] + PLAIN.splitlines()
    (folder / "index.json").write_text(json.dumps(index))


def _pieces(secret: str) -> list[str]:
    """The secret, and the parts of it that a mask might leave: what has letters and digits mixed is no word."""
    parts = [part for part in re.findall(r"[A-Za-z0-9]{8,}", secret) if re.search(r"[0-9]", part)]
    return [secret, *parts]


def test_no_secret_of_a_hundred_leaves(nodectl: Callable[..., Any], tmp_path: Path) -> None:
    assert len(SECRETS) > 100
    planted = tmp_path / "planted"
    copytree(recordings_dir() / "dgx-a100", planted)
    _planted(planted / "node01")
    nodectl("--replay", str(planted), "-l", "node01", "record", str(tmp_path / "masked"), "--mask")
    files = {path: f"{path.name}\n{path.read_text()}" for path in (tmp_path / "masked").rglob("*") if path.is_file()}
    pieces = {piece for secret in SECRETS for piece in _pieces(secret)}
    assert sorted((piece, path.name) for piece in pieces for path, text in files.items() if piece in text) == []
