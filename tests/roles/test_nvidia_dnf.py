"""NVIDIA's rhel repository as dnf itself solves, checks and installs it, below a root of its own.

The repository is built and signed by the tests (tests/rpm_repo), with the module streams of NVIDIA's. Its packages are
installed for real, but hold no file: nothing is booted, no module built, no service started.
"""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment

from nodectl.common.resources import share_dir
from tests.roles.run_module import run_module
from tests.rpm_repo import Repository, build
from tests.rpm_repo.build import PROGRAMS

PINNED = "plugins/modules/pinned_packages.py"
REPO_FILE = "/etc/yum.repos.d/nodectl-nvidia.repo"
STREAM_FILE = "etc/dnf/modules.d/nvidia-driver.module"
LOCKS = "etc/dnf/plugins/versionlock.list"
OPEN: dict[str, Any] = {"names": ["nvidia-open-580", "nvidia-open"], "version": "580.*"}
KERNEL = "5.14.0-687.51.1.el9_8.x86_64"

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, PROGRAMS)), reason=f"needs {', '.join(PROGRAMS)} (scripts/setup.sh)"
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return build(tmp_path_factory.mktemp("rpms"))


def stream_file(stream: str) -> str:
    """The role's own file of the driver's module stream."""
    template = share_dir() / "roles/nvidia_repository/templates" / f"{STREAM_FILE}.j2"
    environment = Environment(trim_blocks=True, keep_trailing_newline=True, autoescape=False)  # noqa: S701  no HTML
    return environment.from_string(template.read_text()).render(nvidia_repository_driver_stream=stream)


@dataclass(frozen=True)
class Host:
    """A root as RHEL 9 lays it out, and nodectl's modules run on it."""

    root: Path
    repository: Repository

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def provisioned(self, driver_stream: str = "580-open", distribution: str = "rhel9", key: str = "") -> "Host":
        """With NVIDIA's repository as the role leaves it."""
        uri, key = f"{self.repository.url}/{distribution}/x86_64/", key or str(self.repository.key_file)
        text = f"[nodectl-nvidia]\nname=NVIDIA\nbaseurl={uri}\ngpgcheck=1\ngpgkey=file://{key}\n"
        self.path(REPO_FILE).write_text(text)
        if distribution == "rhel9":
            self.path(STREAM_FILE).write_text(stream_file(driver_stream))
        return self

    def look(self, wanted: list[dict[str, Any]]) -> dict[str, Any]:
        """What validation answers before the first change."""
        repository = {"uri": f"{self.repository.url}/rhel9/x86_64/", "file": REPO_FILE}
        return self.packages(wanted, look=True, repository=repository)

    def packages(self, packages: list[dict[str, Any]], *, check: bool = False, **options: Any) -> dict[str, Any]:
        arguments = {"check": "nvidia", "packages": packages, "root": str(self.root)}
        return run_module(PINNED, arguments | options, folder=self.root / "tmp", check=check)

    def dnf(self, *words: str) -> str:
        argv = ["dnf", f"--installroot={self.root}", "--assumeyes", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stdout + done.stderr
        return done.stdout

    def installed(self) -> set[str]:
        form = "%{NAME}-%{VERSION}-%{RELEASE}\n"
        argv = ["rpm", "--root", str(self.root), "-qa", "--queryformat", form]
        out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        return {line for line in out.split() if not line.startswith("gpg-pubkey")}


@pytest.fixture
def host(tmp_path: Path, repository: Repository) -> Iterator[Host]:
    plugins = tmp_path / "etc/dnf/plugins"
    for folder in (
        plugins,
        *(tmp_path / name for name in ("etc/yum.repos.d", "etc/dnf/modules.d", "var/lib/rpm", "tmp")),
    ):
        folder.mkdir(parents=True)
    made = Host(tmp_path, repository)
    made.path("etc/os-release").write_text('ID="rocky"\nVERSION_ID="9.8"\nPLATFORM_ID="platform:el9"\n')
    # as RHEL 9 ships it; plug-ins are looked for on the machine unless a file says where
    made.path("etc/dnf/dnf.conf").write_text(
        f"[main]\ngpgcheck=1\nbest=True\nclean_requirements_on_remove=True\npluginconfpath={plugins}\n"
    )
    (plugins / "versionlock.conf").write_text(f"[main]\nenabled=1\nlocklist={tmp_path}/{LOCKS}\n")
    made.path(LOCKS).write_text("")
    (plugins / "local.conf").write_text("[main]\nenabled=0\n")
    made.path("etc/yum.repos.d/system.repo").write_text(
        f"[system]\nname=RHEL and EPEL\nbaseurl=file://{repository.system}\ngpgcheck=1\ngpgkey=file://{repository.key_file}\n"
    )
    yield made


def _of(branch: str, name: str) -> dict[str, Any]:
    return {"names": [name], "version": f"{branch}.*"}


@pytest.mark.parametrize(
    ("stream", "wanted", "module"),
    [
        ("580-open", _of("580", "nvidia-open"), "kmod-nvidia-open-dkms-580.126.20-1.el9"),
        pytest.param(
            "590-open", _of("590", "nvidia-open"), "kmod-nvidia-open-dkms-590.48.01-1.el9", marks=pytest.mark.slow
        ),
        pytest.param(
            "580-dkms", _of("580", "cuda-drivers"), "kmod-nvidia-latest-dkms-580.126.20-1.el9", marks=pytest.mark.slow
        ),
    ],
)
def test_of_two_branches_one_comes_whole_and_no_upgrade_moves_it(
    host: Host, stream: str, wanted: dict[str, Any], module: str
) -> None:
    host.provisioned(driver_stream=stream)
    version = module.split("dkms-")[1].partition("-")[0]
    manager: dict[str, Any] = {"names": ["nvidia-fabricmanager"], "version": f"{version}-*"}
    driver = host.packages([wanted], driver=True)
    assert driver.get("changed") and module in host.installed(), driver
    assert host.packages([manager], hold_driver=True)["changed"]
    before = host.installed()
    assert {line.rsplit("-", 2)[1] for line in before if "nvidia" in line or "cuda" in line} == {version}
    host.dnf("upgrade")
    assert host.installed() == before
    # also where somebody enables the newest branch
    host.dnf("module", "reset", "nvidia-driver")
    host.dnf("module", "enable", "nvidia-driver:590-open")
    host.dnf("upgrade")
    assert host.installed() == before
    assert not host.packages([wanted, manager], driver=True)["changed"]


@pytest.mark.slow
def test_a_branch_without_streams_comes_whole_and_no_upgrade_moves_it(host: Host) -> None:
    """As in rhel10: the branch is a pattern of versions, then lines of versionlock."""
    host.path("etc/os-release").write_text('ID="rocky"\nVERSION_ID="10.1"\nPLATFORM_ID="platform:el10"\n')
    host.provisioned(distribution="rhel10")
    assert not host.path(STREAM_FILE).exists()
    manager: dict[str, Any] = {"names": ["nvidia-fabricmanager"], "version": "580.126.20-*"}
    switches: dict[str, Any] = {"names": ["libnvidia-nscq"], "version": "580.126.20-*", "optional": True}
    assert host.packages([OPEN], driver=True).get("changed")
    assert host.packages([manager, switches], hold_driver=True)["changed"]
    before = host.installed()
    assert {"kmod-nvidia-open-dkms-580.126.20-1.el10", "libnvidia-nscq-580.126.20-1"} <= before
    assert {line.rsplit("-", 2)[1] for line in before if "nvidia" in line} == {"580.126.20"}
    host.dnf("upgrade")
    assert host.installed() == before


@pytest.mark.slow
def test_what_dnf_itself_writes_of_a_stream_is_the_roles_file(host: Host) -> None:
    host.provisioned()
    host.dnf("module", "reset", "nvidia-driver")
    host.dnf("module", "enable", "nvidia-driver:580-open")
    assert host.path(STREAM_FILE).read_text() == stream_file("580-open")


def test_each_package_is_in_its_version_and_locked(host: Host) -> None:
    host.provisioned()
    wanted: list[dict[str, Any]] = [
        {"names": ["cuda-toolkit-12-8"]},
        {"names": ["libcudnn9-cuda-12"], "version": "9.10.2.21-1"},
        {"names": ["libcudnn9-devel-cuda-12"], "version": "9.10.2.21-1"},
        {"names": ["libnccl"], "version": "2.17.1-1+cuda12.1"},
        {"names": ["datacenter-gpu-manager-4-cuda12"]},
    ]
    foreseen = host.packages(wanted, check=True)
    assert foreseen["changed"] and not host.installed()
    after = host.packages(wanted)["diff"]["after"].splitlines()
    assert set(after) <= set(foreseen["diff"]["after"].splitlines())
    assert "libcudnn9-cuda-12 9.10.2.21-1 (held)" in after and len(after) == len(wanted)
    locks = host.path(LOCKS).read_text().splitlines()
    assert "libcudnn9-cuda-12-0:9.10.2.21-1.*" in locks and "datacenter-gpu-manager-4-cuda12-1:4.4.1-1.*" in locks
    before = host.installed()
    host.dnf("upgrade")
    assert host.installed() == before
    assert not host.packages(wanted)["changed"]


@pytest.mark.slow
def test_another_version_takes_the_place_of_the_locked_one(host: Host) -> None:
    host.provisioned()
    names = ["libcudnn9-cuda-12"]
    host.packages([{"names": names, "version": "9.22.0.52-1"}])
    answer = host.packages([{"names": names, "version": "9.10.2.21-1"}])
    assert answer["plan"] == [
        {"action": "install", "name": names[0], "before": "9.22.0.52-1", "after": "9.10.2.21-1"}
    ], answer
    assert host.path(LOCKS).read_text() == "libcudnn9-cuda-12-0:9.10.2.21-1.*\n"


@pytest.mark.slow
def test_locks_of_others_are_kept_and_held_against_a_plan(host: Host) -> None:
    host.provisioned()
    host.packages([{"names": ["libnccl"], "version": "2.17.1-1+cuda12.1"}], hold=False)
    host.path(LOCKS).write_text("# by hand\nlibnccl-0:2.17.1-1+cuda12.1.*\n!perftest-0:1-1.*\n")
    answer = host.packages([{"names": ["libnccl-devel"], "version": "2.25.1-1+cuda12.8"}])
    assert answer["failed"] and "it would change libnccl, which is held at 2.17.1-1+cuda12.1" in answer["msg"], answer
    host.packages([{"names": ["cuda-toolkit-12-8"]}])
    assert host.path(LOCKS).read_text() == (
        "# by hand\nlibnccl-0:2.17.1-1+cuda12.1.*\n!perftest-0:1-1.*\ncuda-toolkit-12-8-0:12.8.1-1.*\n"
    )


def test_a_meta_package_that_brings_a_driver_is_refused(host: Host) -> None:
    host.provisioned(driver_stream="580-dkms")
    answer = host.packages([{"names": ["cuda"]}])
    assert answer["failed"] and "it would bring cuda-drivers 580.126.20-1.el9" in answer["msg"], answer
    assert not host.installed()


@pytest.mark.slow
def test_dcgm_4_takes_the_place_of_3(host: Host) -> None:
    host.provisioned()
    host.packages([{"names": ["datacenter-gpu-manager"]}], hold=False)
    wanted = [{"names": ["datacenter-gpu-manager-4-cuda12"]}]
    refused = host.packages(wanted)
    assert refused["failed"] and "datacenter-gpu-manager" in refused["msg"], refused
    done = host.packages(wanted, absent=["datacenter-gpu-manager"])
    assert {"action": "remove", "name": "datacenter-gpu-manager", "before": "3.3.6-1", "after": ""} in done["plan"]
    assert host.installed() == {"datacenter-gpu-manager-4-core-4.4.1-1", "datacenter-gpu-manager-4-cuda12-4.4.1-1"}


@pytest.mark.slow
def test_headers_come_for_the_kernel_that_is_meant(host: Host) -> None:
    """They lie side by side; a lock would keep those of the next kernel away."""
    host.provisioned()
    older = "kernel-devel-5.14.0-611.41.1.el9_7"
    for name, there in ((f"{older}.x86_64", older), (f"kernel-devel-{KERNEL}", "kernel-devel-5.14.0-687.51.1.el9_8")):
        answer = host.packages([{"names": [name], "optional": True}])
        assert answer.get("changed"), answer
        assert there in host.installed()
        assert not host.packages([{"names": [name]}])["changed"]
    assert host.path(LOCKS).read_text() == ""
    answer = host.packages([{"names": ["kernel-devel-5.14.0-1.el9.x86_64"]}])
    assert answer["failed"] and "no repository of this host has kernel-devel-5.14.0-1.el9.x86_64" in answer["msg"]


@pytest.mark.slow
def test_without_epel_the_driver_is_refused_before_anything_changes(host: Host) -> None:
    """Also where dnf has never read NVIDIA's repository."""
    wanted: list[dict[str, Any]] = [
        {**OPEN, "driver": True},
        {"names": ["dkms"]},
        {"names": ["nvidia-fabricmanager"], "version": "@driver-*"},
    ]
    looked = host.look(wanted)
    assert not looked.get("failed"), looked
    with host.path("etc/yum.repos.d/system.repo").open("a") as file:
        file.write("excludepkgs=dkms\n")
    refused = host.look([*wanted, {"names": ["libcudnn9-cuda-12"], "version": "9.9.9-1"}])
    for said in ("no repository of this host has dkms", "libcudnn9-cuda-12=9.9.9-1; it has", "nothing was changed"):
        assert said in refused["msg"], refused
    assert not host.path(REPO_FILE).exists() and not host.path(STREAM_FILE).exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpgcheck=1\ngpgkey=https://mirror.example/D42D0685.pub\n", ""),
        ("gpgcheck=0\n", "without checking signatures"),
        ("gpgcheck=1\n", "without a key (gpgkey)"),
        ("enabled=0\n", None),
        ("gpgkey=x\nbaseurl=https://mirror.example/compute/cuda/repos/rhel8/x86_64/\n", "beside"),
    ],
)
def test_a_second_source_is_adopted_or_refused(host: Host, text: str, said: str | None) -> None:
    cuda = "/etc/yum.repos.d/cuda-rhel9.repo"
    host.path(cuda).write_text(f"[cuda]\nname=x\nbaseurl={host.repository.url}/rhel$releasever/$basearch/\n{text}")
    answer = host.look([])
    assert bool(answer.get("failed")) == bool(said) and (said or "") in answer.get("msg", ""), answer
    assert said or answer["source"] == (cuda if said == "" else ""), answer


@pytest.mark.slow
def test_a_package_that_another_key_signed_is_not_installed(host: Host, tmp_path: Path) -> None:
    (tmp_path / "another").write_text("")
    host.provisioned(key=str(tmp_path / "another"))
    answer = host.packages([{"names": ["cuda-toolkit-12-8"]}])
    assert answer["failed"] and not host.installed(), answer


def test_a_repository_that_does_not_answer_is_the_reason_and_not_what_it_lacks(host: Host) -> None:
    host.path("etc/yum.repos.d/gone.repo").write_text(
        f"[gone]\nname=x\nbaseurl=file://{host.root}/nowhere\nskip_if_unavailable=0\n"
    )
    answer = host.packages([{"names": ["make"]}])
    assert answer["failed"] and answer["msg"].startswith("dnf could not ask its repositories: "), answer
    assert "'gone'" in answer["msg"], answer


@pytest.mark.slow
def test_a_database_that_rpm_cannot_read_is_no_empty_host(host: Host) -> None:
    host.provisioned()
    host.packages([{"names": ["make"]}])
    for file in host.root.rglob("rpmdb.sqlite*"):
        file.write_bytes(b"cut")
    answer = host.packages([{"names": ["make"]}])
    assert answer["failed"] and "rpm -qa ended with" in answer["msg"], answer
