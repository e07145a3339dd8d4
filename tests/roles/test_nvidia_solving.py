"""Names, pins and refusals on Ubuntu 20.04 to 26.04, Debian 12 and 13, as apt itself solves them.

Each runs in a private apt root with that distribution's part of the repository that tests/apt_repo builds: nothing is
booted and nothing installed. What is installed for real is in test_nvidia_lab.py and in tests/booted.
"""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from jinja2 import Environment

from ansible_collections.nodectl.fleet.plugins.module_utils import apt
from ansible_collections.nodectl.fleet.plugins.module_utils import wanted_packages as wanting
from nodectl.common.resources import share_dir
from nodectl.profiles.host_compat import HostLook
from nodectl.profiles.resolve import resolve
from tests.apt_repo import Repository, build
from tests.roles.run_module import run_module

PINNED = "plugins/modules/pinned_packages.py"
PREFERENCES = "etc/apt/preferences.d/90-nodectl-nvidia"
SOURCE = "/etc/apt/sources.list.d/nodectl-nvidia.sources"
ROLE = share_dir() / "roles" / "nvidia_repository"

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-get", "dpkg-deb", "gpg"))), reason="needs apt, dpkg-deb and gpg"
)


# each distribution but one, the oldest and the newest stack; the other pairs are in `make test-all`
QUICK = {("cu116", "ubuntu2004"), ("cu128", "debian12"), ("cu13", "ubuntu2404")}


def stacks() -> Iterator[Any]:
    """Each CUDA stack with each distribution that it says to exist for."""
    for name in ("cu116", "cu118", "cu121", "cu128", "cu13"):
        for system in resolve("unknown", name, "stock").as_variables()["stack"]["os"]:
            if system.startswith("rhel"):
                continue  # test_nvidia_dnf.py
            pair = name, system.replace("-", "").replace(".", "")
            yield pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow)


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return build(tmp_path_factory.mktemp("nvidia"), archive=True)


@pytest.fixture(scope="session")
def filters() -> ModuleType:
    path = share_dir() / "plugins" / "filter" / "nvidia.py"
    spec = importlib.util.spec_from_file_location("nvidia_filters", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Host:
    """A private apt root, and nodectl's modules run on it."""

    root: Path
    repository: Repository
    distribution: str

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def source(self, pins: Sequence[dict[str, Any]] = (), driver_branch: str = "") -> dict[str, Any]:
        """What the role's look answers; then the role's own preferences and a source, as the role leaves them."""
        looked = self.look([*pins])
        signed = f"{self.repository.key_file} {self.repository.fingerprint}"
        uri = f"{self.repository.url}/{self.distribution}/x86_64/"
        self.path(SOURCE).write_text(f"Types: deb\nURIs: {uri}\nSuites: /\nSigned-By: {signed}\n")
        rendered = Environment(trim_blocks=True, autoescape=False).from_string(  # noqa: S701  no HTML
            (ROLE / "templates" / f"{PREFERENCES}.j2").read_text()
        )
        known = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
        known |= {"versions": looked["versions"], "nvidia_repository_driver_branch": driver_branch}
        self.path(PREFERENCES).write_text(rendered.render(known))
        self.apt("apt-get", "-qq", "update")
        return looked

    def look(self, wanted: list[dict[str, Any]], uri: str = "") -> dict[str, Any]:
        """What validation answers before the first change."""
        uri = uri or f"{self.repository.url}/{self.distribution}/x86_64/"
        return self.packages(wanted, look=True, repository={"uri": uri, "file": SOURCE})

    def packages(self, packages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        arguments = {"check": "nvidia", "packages": packages, "root": str(self.root)}
        return run_module(PINNED, arguments | options, folder=self.root / "tmp", check=True)

    def apt(self, program: str, *words: str) -> str:
        options = ["-o", f"Dir={self.root}", "-o", f"Dir::State::status={self.root}/var/lib/dpkg/status"]
        argv = [program, *options, "-o", "APT::Sandbox::User=root", *words]
        env = {**os.environ, "LC_ALL": "C.UTF-8"}
        return subprocess.run(argv, capture_output=True, text=True, check=True, env=env).stdout

    def archive(self, name: str) -> None:
        """The distribution's own repository beside NVIDIA's."""
        text = f"deb [signed-by={self.repository.key_file}] {self.repository.url}/{name}/x86_64/ /\n"
        self.path("etc/apt/sources.list.d/archive.list").write_text(text)
        self.apt("apt-get", "-qq", "update")

    def installs(self, plan: list[dict[str, str]], *, held: bool) -> None:
        """dpkg's file as it stands after the plan: each package as its repository describes it."""
        stanzas = []
        for step in plan:
            shown = self.apt("apt-cache", "show", f"{step['name']}={step['after']}").split("\n\n")[0]
            fields = [line for line in shown.splitlines() if not line.startswith(("Filename", "SHA256", "Size"))]
            fields.insert(1, f"Status: {'hold' if held else 'install'} ok installed")
            stanzas.append("\n".join(fields) + "\n")
        self.holds(*stanzas)

    def policy(self, name: str) -> str:
        out = self.apt("apt-cache", "policy", name)
        return next(line.split()[1] for line in out.splitlines() if "Candidate:" in line)

    def files(self) -> dict[str, bytes]:
        below = self.root / "etc"
        return {str(path.relative_to(self.root)): path.read_bytes() for path in below.rglob("*") if path.is_file()}

    def holds(self, *stanzas: str) -> None:
        """What dpkg has: its own package, for the architecture, and these."""
        own = "Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.21.22\n"
        self.path("var/lib/dpkg/status").write_text("\n".join([own, *stanzas]))


@pytest.fixture
def host(tmp_path: Path, repository: Repository, request: pytest.FixtureRequest) -> Host:
    folders = ("etc/apt/sources.list.d", "etc/apt/preferences.d", "etc/apt/apt.conf.d", "tmp")
    for folder in (*folders, "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg"):
        (tmp_path / folder).mkdir(parents=True)
    made = Host(tmp_path, repository, getattr(request, "param", "ubuntu2204"))
    made.holds()
    return made


@pytest.mark.parametrize(("stack", "host"), list(stacks()), indirect=["host"])
def test_solved_not_installed_each_stack_finds_its_pins(stack: str, host: Host, filters: ModuleType) -> None:
    wanted = resolve("unknown", stack, "stock").as_variables()["stack"]
    pins = filters.nvidia_pins(wanted)
    branch = wanted["driver"]["branch"]
    answer = host.source(pins=pins, driver_branch=branch)
    for pin in pins:
        (name,), version = pin["names"], pin["version"]
        candidate = host.policy(name)
        assert candidate == answer["versions"][name], answer
        assert candidate == version or (pin["nearest"] and candidate.endswith(version.partition("+")[2]))
    layers = [*pins]
    layers += [filters.wanted_package(wanted["toolkit"]["package"])]
    layers += [filters.wanted_package(name) for name in wanted["dcgm"]]
    plan = host.packages(layers)
    assert "plan" in plan, plan
    assert {name for pin in pins for name in pin["names"]} <= {step["name"] for step in plan["plan"]}
    driver = {"names": filters.driver_packages(wanted["driver"]), "version": f"{branch}.*"}
    plan = host.packages([driver], driver=True)
    drivers = [step["after"] for step in plan["plan"]]
    assert drivers and all(version.startswith(branch) for version in drivers), plan


def test_solved_not_installed_a_kept_driver_is_no_candidate(host: Host) -> None:
    host.source(driver_branch="")
    assert host.policy("cuda-drivers-535") == "(none)"
    assert host.policy("nvidia-open-580") == "(none)"
    assert host.policy("libcudnn9-cuda-12") != "(none)"


ARCHIVES = {
    "ubuntu2404": "archive",
    "ubuntu2604": "archive",
    "debian12": "archive-debian",
    "debian13": "archive-debian",
}


@pytest.mark.parametrize(
    ("host", "branch", "flavour"),
    [
        ("ubuntu2404", "580", "open"),
        pytest.param("ubuntu2404", "590", "proprietary", marks=pytest.mark.slow),
        pytest.param("debian12", "580", "proprietary", marks=pytest.mark.slow),
        pytest.param("debian12", "590", "open", marks=pytest.mark.slow),
        ("debian13", "595", "open"),
        pytest.param("ubuntu2604", "595", "open", marks=pytest.mark.slow),
    ],
    indirect=["host"],
)
def test_solved_not_installed_of_two_branches_one_comes_whole_and_no_upgrade_moves_it(
    host: Host, branch: str, flavour: str, filters: ModuleType
) -> None:
    """580 and 590 side by side, and the distribution's own newer driver of the same branch beside them."""
    host.source(driver_branch=branch)
    host.archive(ARCHIVES[host.distribution])
    driver = {"names": filters.driver_packages({"branch": branch, "flavour": flavour}), "version": f"{branch}.*"}
    plan = host.packages([driver], driver=True)["plan"]
    versions = {step["after"].partition("-")[0] for step in plan}
    assert len(plan) > 5 and len(versions) == 1, plan
    (version,) = versions
    assert version.startswith(f"{branch}.")
    if host.distribution != "debian13":  # no fabric manager was seen there
        beside = host.packages(filters.fabric_manager_packages(version))["plan"]
        assert {step["name"] for step in beside} >= {"nvidia-fabricmanager", "libnvidia-nscq"}, beside
        plan += beside
    for held in (True, False):
        host.installs(plan, held=held)
        assert "Inst " not in host.apt("apt-get", "--simulate", "dist-upgrade"), "neither driver nor fabric manager"


@pytest.mark.parametrize(("host", "branch"), [("debian12", "580"), ("ubuntu2404", "")], indirect=["host"])
def test_solved_not_installed_what_is_only_named_like_a_driver_is_free(host: Host, branch: str) -> None:
    host.source(driver_branch=branch)
    host.archive(ARCHIVES[host.distribution])
    assert host.policy("nvidia-container-toolkit") == "1.19.1-1"
    assert host.policy("nvlsm") == "2025.10.12-1"
    if host.distribution == "debian12":
        assert host.policy("nvidia-installer-cleanup") != "(none)", "Debian's own, which its form of driver needs"


def _fabric_manager(branch: str, version: str) -> dict[str, Any]:
    return {"names": [f"nvidia-fabricmanager-{branch}", "nvidia-fabricmanager"], "version": f"{version}-*"}


@pytest.mark.parametrize(
    ("branch", "wanted", "said"),
    [
        ("530", {"names": ["cuda"]}, "it would bring cuda-drivers 530.30.02-1"),
        ("", {"names": ["libcudnn8"], "version": "9.9"}, "it has libcudnn8 8.9.7.29-1+cuda12.2"),
        ("535", _fabric_manager("535", "535.161.07"), "nvidia-fabricmanager-535 535.183.01-1, 535.129.03-1"),
        # as before nodectl: the archive's package leads to another branch
        (None, _fabric_manager("570", "570.211.01"), "it would bring nvidia-fabricmanager-580"),
    ],
)
def test_solved_not_installed_what_is_refused_is_named_with_what_there_is(
    host: Host, branch: str | None, wanted: dict[str, Any], said: str
) -> None:
    host.source(driver_branch=branch or "")
    if branch is None:
        host.archive("archive")
        host.path(PREFERENCES).unlink()
    answer = host.packages([wanted])
    assert answer["failed"] and said in answer["msg"], answer


def test_solved_not_installed_what_somebody_holds_stays(host: Host) -> None:
    stanza = "Maintainer: x\nDescription: x\nArchitecture: amd64\n"
    host.holds(f"Package: libnccl2\nStatus: hold ok installed\nVersion: 2.14.3-1+cuda11.7\n{stanza}")
    host.source()
    answer = host.packages([{"names": ["libnccl-dev"], "version": "2.15.5-1+cuda11.8"}])
    assert answer["failed"] and "but 2.14.3-1+cuda11.7 is to be installed" in answer["msg"], answer


def test_solved_not_installed_what_a_rollback_could_not_restore_is_named_first(host: Host) -> None:
    stanza = "Maintainer: x\nDescription: x\nArchitecture: amd64\n"
    host.source(pins=[{"names": ["libnccl2"], "version": "2.15.5-1+cuda11.8"}])
    for version, is_named in (("2.0.1-1+cuda11.8", True), ("2.14.3-1+cuda11.7", False)):
        host.holds(f"Package: libnccl2\nStatus: install ok installed\nVersion: {version}\n{stanza}")
        answer = host.packages([{"names": ["libnccl2"], "version": "2.15.5-1+cuda11.8"}])
        assert answer["plan"], answer
        assert (f"no repository has libnccl2 {version} any more" in str(answer.get("warnings"))) is is_named, answer


def test_a_mirror_that_does_not_answer_is_named(host: Host) -> None:
    gone = "http://127.0.0.1:9/ubuntu2204/x86_64/"
    answer = host.look([{"names": ["libcudnn9-cuda-12"]}], gone)
    assert answer["failed"] and f"apt could not read {gone}" in answer["msg"], answer


def test_a_version_that_is_nowhere_is_refused_before_anything_changes(host: Host, filters: ModuleType) -> None:
    """Also where apt has never read the repository: cuDNN's version was missed after driver and toolkit had gone in."""
    before = host.files()
    node = {"kernel": "6.8.0-45-generic", "driver": {"version": None}}
    stack = resolve("unknown", "cu118", "stock").as_variables()["stack"]
    wanted = filters.asked_packages(stack, node, "manage", True)
    assert "failed" not in host.look(wanted), "the stack as it is"
    wrong = [each | {"version": "9.9.9-1"} if "libcudnn8" in each["names"] else each for each in wanted]
    wrong.append({"names": ["linux-headers-6.8.0-99-generic"]})
    answer = host.look(wrong)
    assert answer["failed"] and answer["msg"].endswith("nothing was changed"), answer
    for said in ("libcudnn8=9.9.9-1; it has libcudnn8 8.", "linux-headers-6.8.0-99-generic"):
        assert said in answer["msg"], answer
    assert host.files() == before


UBUNTU = resolve(
    "unknown", "cu128", "stock", look=HostLook.create({"os": {"id": "ubuntu", "version": "24.04"}})
).as_variables()
NEXT_BOOT = {"headers": False, "held": [], "free_mib": None, "needed_mib": 0}


def node_of(kernel: str, system: str = "ubuntu-24.04") -> dict[str, Any]:
    """A host without a driver, whose next boot starts this kernel."""
    driver: dict[str, Any] = {"version": None, "origin": "none", "packages": []}
    return {"os": {"key": system}, "kernel": kernel, "boot": {**NEXT_BOOT, "kernel": kernel}, "driver": driver}


@pytest.mark.slow
@pytest.mark.parametrize("host", ["ubuntu2404"], indirect=True)
def test_solved_not_installed_precompiled_modules_come_with_their_distributions_driver(
    host: Host, filters: ModuleType
) -> None:
    node = node_of("6.8.0-100-generic")
    wanted = filters.wanted_driver(UBUNTU["stack"]["driver"], node, "precompiled", UBUNTU["family"])
    assert filters.driver_mode(node, wanted) == "manage" and not filters.driver_obstacles(node, "manage", wanted)
    host.source(driver_branch="")  # NVIDIA's own driver is no candidate then
    host.archive("archive")
    asked = filters.asked_packages({"driver": wanted}, node, "manage", False, UBUNTU["family"])
    looked = host.look(asked)
    assert looked.get("driver") == "580.173.02", looked
    beside = filters.driver_beside(wanted, node, looked["driver"])
    driver: dict[str, Any] = {"names": filters.driver_packages(wanted), "version": "580.*"}
    plan = host.packages([driver, *beside], driver=True)["plan"]
    names = {step["name"] for step in plan}
    assert names >= {
        "nvidia-headless-no-dkms-580-server-open",
        "nvidia-utils-580-server",
        "libnvidia-compute-580-server",
        "linux-modules-nvidia-580-server-open-6.8.0-100-generic",
    }
    assert not any("dkms" in name and "no-dkms" not in name for name in names), names
    host.installs(plan, held=True)
    there = {
        "packages": [{"name": driver["names"][0], "version": "580.173.02-0ubuntu0.24.04.1", "from": "distribution"}]
    }
    known = {**node, "driver": {**node["driver"], **there, "origin": "apt"}}
    assert filters.driver_mode(known, wanted) == "manage" and not filters.driver_objection(known, "manage", wanted)
    assert filters.driver_mode(known, UBUNTU["stack"]["driver"]) == "keep", "by DKMS it is the distribution's"


@pytest.mark.parametrize("host", ["ubuntu2404"], indirect=True)
def test_a_kernel_without_precompiled_modules_is_refused_with_what_there_is(host: Host, filters: ModuleType) -> None:
    before = host.files()
    host.archive("archive")
    node = node_of("6.8.0-45-generic")
    wanted = filters.wanted_driver(UBUNTU["stack"]["driver"], node, "precompiled", UBUNTU["family"])
    said = host.look(filters.asked_packages({"driver": wanted}, node, "manage", False, UBUNTU["family"]))["msg"]
    for part in (
        "no repository of this host has linux-modules-nvidia-580-server-open-6.8.0-45-generic",
        "linux-modules-nvidia-*-6.8.0-45-generic: linux-modules-nvidia-535-server-6.8.0-45-generic",
        "linux-modules-nvidia-580-server-open-6.8.0-90-generic",
        "set nvidia_driver_modules to dkms",
        "nothing was changed",
    ):
        assert part in said, said
    assert host.files().keys() - before.keys() == {"etc/apt/sources.list.d/archive.list"}


@pytest.mark.parametrize(
    ("host", "system", "version"), [("debian13", "debian", "13"), ("ubuntu2604", "ubuntu", "26.04")], indirect=["host"]
)
def test_the_newest_systems_are_asked_for_what_they_have(
    host: Host, system: str, version: str, filters: ModuleType
) -> None:
    """Their first branch of the driver; and DCGM, which was not seen there, is refused with the way out."""
    look = HostLook.create({"os": {"id": system, "version": version, "key": f"{system}-{version}"}})
    node = {"kernel": "6.12.0-1", "driver": {"version": None}}

    def asked(**overrides: Any) -> list[dict[str, Any]]:
        resolved = resolve("unknown", "cu132", "stock", overrides=overrides, look=look).as_variables()
        packages: list[dict[str, Any]] = filters.asked_packages(
            resolved["stack"], node, "manage", False, resolved["family"]
        )
        return packages

    said = host.look(asked())["msg"]
    assert "no repository of this host has datacenter-gpu-manager-4-cuda13" in said and "{dcgm: []}" in said, said
    looked = host.look(asked(stack={"dcgm": []}))
    assert looked.get("driver") == "595.71.05", looked


def test_empty_lists_of_apt_are_named_as_the_cause(host: Host) -> None:
    for look in (True, False):
        said = host.packages([{"names": ["infiniband-diags"]}], look=look)["msg"]
        assert "no repository of this host has infiniband-diags; apt has read no list of packages here" in said
        assert "update_cache: true" in said
    host.archive("archive")
    assert "read no list" not in host.packages([{"names": ["nowhere"]}], look=True)["msg"]


def test_an_answer_before_the_repository_is_there_is_a_plan_not_a_refusal(host: Host) -> None:
    wanted = [{"names": ["libnccl2"], "version": "2.17.1-1+cuda12.1"}]
    assert host.packages(wanted)["failed"]
    foreseen = host.packages(wanted, source_expected=True)
    assert foreseen["changed"] and foreseen["diff"]["after"] == "libnccl2 2.17.1-1+cuda12.1 (held)\n"


NVIDIA_URI = "https://one.example/compute/cuda/repos/ubuntu2204/x86_64/"


@pytest.mark.parametrize(
    ("file", "text", "adopted", "said"),
    [
        ("a.list", "deb [arch=amd64 signed-by=/k.gpg] {} /\ndeb-src http://src.example/ main x\n", True, ""),
        ("a.list", "# deb [trusted=yes] {} /\n", False, ""),
        ("a.list.disabled", "deb {} /\n", False, ""),
        ("a.list", "deb {} /\n", False, "with no signed-by, so with any key that apt trusts"),
        ("a.list", "deb [trusted=yes] {} /\n", False, "without checking signatures (trusted=yes)"),
        ("a.list", "deb [signed-by=/gone.gpg] {} /\n", False, "signed by /gone.gpg, which is not there"),
        (
            "a.list",
            "deb [signed-by=/k.gpg] https://two.example/compute/cuda/repos/x/ /\n",
            False,
            f"beside {NVIDIA_URI}",
        ),
        ("a.sources", "Types: deb\nURIs: {}\nSuites: /\nSigned-By: /k.gpg\n", True, ""),
        ("a.sources", "Types: deb\nURIs: {}\nSuites: /\nSigned-By:\n -----BEGIN PGP PUBLIC KEY\n .\n", True, ""),
        ("a.sources", "Enabled: no\nTypes: deb\nURIs: {}\nSuites: /\n", False, ""),
        ("a.sources", "Types: deb\nURIs: http://x.example {}\nSuites: a b\n", False, "with no signed-by"),
    ],
)
def test_a_second_source_is_adopted_or_refused(host: Host, file: str, text: str, adopted: bool, said: str) -> None:
    host.path("k.gpg").touch()
    path = f"/etc/apt/sources.list.d/{file}"
    host.path(path).write_text(text.format(NVIDIA_URI))
    answer = host.look([], NVIDIA_URI)
    assert said in answer.get("msg", "") and bool(answer.get("failed")) == bool(said), answer
    assert said or answer["source"] == path * adopted, answer


@pytest.mark.parametrize(
    ("wanted", "offered", "version"),
    [
        ("2.12.7-1+cuda11.6", ["2.14.3-1+cuda11.7", "2.12.12-1+cuda11.6", "2.12.10-1+cuda11.6"], "2.12.10-1+cuda11.6"),
        ("2.13.1-1+cuda11.6", ["2.12.12-1+cuda11.6", "2.12.10-1+cuda11.6"], "2.12.12-1+cuda11.6"),
        ("2.12.7-1+cuda11.6", ["2.12.7-1+cuda11.5"], None),
    ],
)
def test_the_nearest_is_of_the_same_cuda(wanted: str, offered: list[str], version: str | None) -> None:
    assert wanting.nearest(wanted, offered) == version


def test_only_what_was_asked_for_may_happen() -> None:
    steps = apt.parse_simulation("Inst own (1 X)\nInst cuda-drivers (2 X)\nRemv old [1]\nInst held [1] (2 X)\n")
    said = wanting.objections(steps, {"own"}, [], lambda name, _: name != "cuda-drivers", {"held"})
    assert said == [
        "it would bring cuda-drivers 2",
        "it would remove old 1",
        "it would change held, which is held at 1",
    ]
    assert not wanting.objections(steps, {"own", "cuda-drivers", "held"}, ["old"], lambda name, _: False, set())
