"""Units of roles as systemd checks them; what DCGM's exporter and the container toolkit run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from nodectl.common.resources import share_dir

ROLES = share_dir() / "roles"
PACKAGE: dict[str, Any] = {"dcgm_exporter_image": ""}
IMAGE = {"dcgm_exporter_image": "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless"}


def unit(role: str, name: str, **variables: Any) -> str:
    """A role's unit with its defaults."""
    template = ROLES / role / "templates" / "etc" / "systemd" / "system" / f"{name}.j2"
    given = {**yaml.safe_load((ROLES / role / "defaults" / "main.yml").read_text()), **variables}
    return str(jinja2.Template(template.read_text(), undefined=jinja2.StrictUndefined, trim_blocks=True).render(given))


@pytest.mark.parametrize(
    ("role", "name", "variables"),
    [
        ("health_timer", "nodectl-health.service", {}),
        ("health_timer", "nodectl-health.timer", {}),
        ("dcgm", "nodectl-dcgm-watches.service", {"dcgm_watch_groups": ["g", "s"]}),
        ("dcgm_exporter", "nvidia-dcgm-exporter.service", {**PACKAGE, "dcgm_exporter_hostname": "gpu01"}),
        ("dcgm_exporter", "nvidia-dcgm-exporter.service", {**IMAGE, "dcgm_exporter_hostname": "gpu01"}),
    ],
)
def test_systemd_itself_has_no_word_against_the_units(
    tmp_path: Path, role: str, name: str, variables: dict[str, Any]
) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    # none of the programs is here: only that they are missing may be said
    text = unit(role, name, **variables)
    for program in ("/usr/bin/dcgmi", "/usr/bin/dcgm-exporter", "/usr/bin/docker", "/opt/nodectl/tool/bin/nodectl"):
        text = text.replace(f"{program} ", "/bin/true ")
    (tmp_path / name).write_text(text)
    broken = tmp_path / "broken.service"
    broken.write_text("[Service]\nType=sometimes\nExecStart=/nowhere\n")
    argv = ["systemd-analyze", "verify", str(tmp_path / name), str(broken)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert [line for line in done.stderr.splitlines() if name in line] == [], done.stderr
    assert "broken.service" in done.stderr, "systemd-analyze would have told"


@pytest.mark.parametrize("variables", [PACKAGE, IMAGE, {**IMAGE, "dcgm_exporter_engine": "podman"}])
def test_the_exporter_listens_where_it_is_told_and_starts_no_engine_of_its_own(variables: dict[str, Any]) -> None:
    text = unit("dcgm_exporter", "nvidia-dcgm-exporter.service", **variables, dcgm_exporter_hostname="gpu01")
    (start,) = (line for line in text.replace("\\\n", "").splitlines() if line.startswith("ExecStart="))
    words = start.split()
    assert words[words.index("--address") + 1] == "127.0.0.1:9400"
    assert words[words.index("--remote-hostengine-info") + 1] == "localhost:5555"
    assert "Environment=NODE_NAME=gpu01\n" in text and " -p " not in start
    assert ("--network" in words) == bool(variables["dcgm_exporter_image"])


def test_the_toolkit_says_whether_it_configured_an_engine_anew(tmp_path: Path) -> None:
    """With a stand-in for nvidia-ctk that writes the same again and again, as the real one does."""
    (script,) = yaml.safe_load((ROLES / "container_toolkit" / "vars" / "main.yml").read_text()).values()
    file = tmp_path / "daemon.json"
    (tmp_path / "nvidia-ctk").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho "$RUNTIME" > {file}\n')
    (tmp_path / "nvidia-ctk").chmod(0o755)
    script = script.replace("/etc/docker/daemon.json", str(file)).replace("/etc/containerd", str(tmp_path))

    script = script.replace("/usr/bin/$program", "/bin/sh")

    def configured(runtime: str, *given: str) -> str:
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "RUNTIME": runtime}
        argv = ["sh", "-c", script, "sh", "", *given]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert configured("nvidia", "docker") == "docker"
    assert configured("nvidia", "docker") == ""
    assert configured("other", "containerd") == "containerd"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [
        *["runtime configure --runtime=docker"] * 2,
        "runtime configure --runtime=containerd --cdi.enabled",
    ]
    (tmp_path / "nvidia-ctk").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(subprocess.CalledProcessError):
        configured("nvidia", "docker")
