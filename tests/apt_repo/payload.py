"""What the test packages install: a few bytes where the real ones put theirs, for rollback to take back."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

_UNIT = """[Unit]
Description={description}

[Service]
ExecStart={program}

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True, slots=True)
class Payload:
    """Files by path, those of them that run, and maintainer scripts by name."""

    files: dict[str, str] = field(default_factory=dict)
    programs: frozenset[str] = frozenset()
    scripts: dict[str, str] = field(default_factory=dict)


def payload(kind: str | None, name: str, version: str) -> Payload:
    """The payload of a package; each has at least its place under /usr/share/doc."""
    made = _KINDS[kind](name, version) if kind else Payload()
    note = f"{name} {version}: made for tests, holds no NVIDIA software\n"
    return Payload({**made.files, f"/usr/share/doc/{name}/README.tests": note}, made.programs, made.scripts)


def _release(name: str) -> str:
    found = re.search(r"-(\d+)-(\d+)", name)
    assert found, name
    return f"{found[1]}.{found[2]}"


def _toolkit(name: str, version: str) -> Payload:
    """version.json and a compiler that says its version."""
    release, upstream = _release(name), version.partition("-")[0]
    nvcc = f"/usr/local/cuda-{release}/bin/nvcc"
    text = f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{upstream}'\n"
    document = f'{{"cuda": {{"name": "CUDA SDK", "version": "{upstream}"}}}}\n'
    return Payload({nvcc: text, f"/usr/local/cuda-{release}/version.json": document}, frozenset({nvcc}))


def _alternative(name: str, version: str) -> Payload:
    """The link /usr/local/cuda, as update-alternatives keeps it."""
    release = _release(name)
    priority = release.replace(".", "")
    place = f"/usr/local/cuda-{release}"
    add = f"#!/bin/sh\nset -e\nupdate-alternatives --quiet --install /usr/local/cuda cuda {place} {priority}\n"
    drop = f'#!/bin/sh\nset -e\n[ "$1" = upgrade ] || update-alternatives --quiet --remove cuda {place}\n'
    return Payload({f"{place}/README": f"CUDA {release}\n"}, scripts={"postinst": add, "prerm": drop})


def _fabricmanager(name: str, version: str) -> Payload:
    """The program answers --version as the real one does; the real package's control file lists these places."""
    program, upstream = "/usr/bin/nv-fabricmanager", version.partition("-")[0]
    unit = _UNIT.format(description="NVIDIA fabric manager service", program=f"{program} -c /dev/null")
    return Payload(
        {
            program: f"#!/bin/sh\necho 'Fabric Manager version is : {upstream}'\n",
            "/lib/systemd/system/nvidia-fabricmanager.service": unit,
            "/usr/share/nvidia/nvswitch/fabricmanager.cfg": "LOG_LEVEL=4\n",
        },
        frozenset({program}),
    )


def _dcgm(name: str, version: str) -> Payload:
    """An engine that answers a while after its start, is started anew after a crash, and forgets its watches then."""
    unit = _UNIT.format(description="NVIDIA DCGM service", program="/usr/bin/nv-hostengine -n")
    unit = unit.replace("[Install]", "Restart=on-abort\n\n[Install]")
    programs = {
        "/usr/bin/nv-hostengine": "rm -f /run/dcgm-watches\nsleep 2\necho $$ > /run/dcgm-pid\nexec sleep infinity",
        "/usr/bin/dcgmi": 'kill -0 "$(cat /run/dcgm-pid)" || exit\n'
        'case "$*" in\n*--set*) echo "$*" > /run/dcgm-watches ;;\n'
        "*--check*) [ -e /run/dcgm-watches ] && echo '| Overall Health | Healthy |' && exit\n"
        "echo 'Error: Health watches not enabled. Please enable watches.'\nexit 1 ;;\nesac",
    }
    files = {program: f"#!/bin/sh\n{text}\n" for program, text in programs.items()}
    return Payload({**files, "/lib/systemd/system/nvidia-dcgm.service": unit}, frozenset(programs))


def _exporter(name: str, version: str) -> Payload:
    """It says with which words it was started; the package's own unit has it listen everywhere."""
    program = "/usr/bin/dcgm-exporter"
    unit = _UNIT.format(description="NVIDIA DCGM-exporter service", program=f"{program} -f /etc/default-counters.csv")
    text = '#!/bin/sh\necho "$NODE_NAME $*" >> /run/dcgm-exporter\nexec sleep infinity\n'
    return Payload({program: text, "/lib/systemd/system/nvidia-dcgm-exporter.service": unit}, frozenset({program}))


def _containers(name: str, version: str) -> Payload:
    """The units that describe GPUs for CDI; without a driver the service does nothing."""
    service = _UNIT.format(description="Refresh CDI", program="/bin/true").replace("Exec", "Type=oneshot\nExec")
    path = "[Path]\nPathChanged=/usr/bin/nvidia-ctk\n\n[Install]\nWantedBy=multi-user.target\n"
    folder = "/usr/lib/systemd/system/nvidia-cdi-refresh"
    files = {"/usr/bin/nvidia-ctk": "#!/bin/sh\n", f"{folder}.service": service, f"{folder}.path": path}
    return Payload(files, frozenset({"/usr/bin/nvidia-ctk"}))


def _dkms(name: str, version: str) -> Payload:
    upstream = version.partition("-")[0]
    return Payload({f"/usr/src/nvidia-{upstream}/dkms.conf": f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{upstream}"\n'})


def _library(name: str, version: str) -> Payload:
    return Payload({f"/usr/lib/nodectl-tests/{name}.so": f"{version}\n"})


def _pinning(name: str, version: str) -> Payload:
    branch = name.rpartition("-")[2]
    text = f"Package: cuda-drivers nvidia-open\nPin: version {branch}*\nPin-Priority: 1000\n"
    return Payload({f"/etc/apt/preferences.d/{name}": text})


_KINDS: dict[str, Callable[[str, str], Payload]] = {
    "toolkit": _toolkit,
    "alternative": _alternative,
    "fabricmanager": _fabricmanager,
    "dcgm": _dcgm,
    "exporter": _exporter,
    "containers": _containers,
    "dkms": _dkms,
    "library": _library,
    "pinning": _pinning,
}
