"""The operator's machine: Python, packages, programs, folders, terminal, Ansible, and what logs in to the hosts."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import date
from importlib import metadata
from pathlib import Path
from traceback import walk_tb

from nodectl import __version__
from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.paths import folders, state_dir
from nodectl.common.process import UTF_8, encoding, is_utf_8, login
from nodectl.common.resources import COLLECTION, collections_dir, share_dir
from nodectl.common.units import format_size_rounded
from nodectl.errors import NodectlError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.profiles.support import published_files
from nodectl.transport.inventory import read_settings
from nodectl.transport.known_hosts import known_hosts
from nodectl.transport.ssh_client import SshClient
from nodectl.transport.ssh_target import Target, password_of, target_of

# no host of an inventory is called so: Ansible's names have no blanks
HERE = "this machine"
_FINE = (Status.OK, Status.SKIPPED)


def here(
    check: str, status: Status, actual: str, *, expected: str = "", remedy: str = "", subject: str = ""
) -> Finding:
    """Return a finding about this machine; what is fine needs no remedy."""
    remedy = "" if status in _FINE else remedy
    return Finding(HERE, check, status, subject, expected=expected, actual=actual, remedy=remedy)


def looked(check: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a look; where it fails, those before it and that the rest could not be told."""
    try:
        yield from look()
    except NodectlError as error:
        yield here(check, Status.FAILED, error.message, remedy=error.remedy)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        yield here(check, Status.UNKNOWN, f"{where}{error.strerror or error}", remedy="look at what it names")
    except Exception as error:  # what is half broken breaks in ways that nobody thought of
        *_, (frame, line) = walk_tb(error.__traceback__)
        place = f"line {line} of {Path(frame.f_code.co_filename).name}"
        actual = f"could not be looked at: {type(error).__name__}: {error} ({place})"
        yield here(check, Status.UNKNOWN, actual, remedy="repair what it names, or please report it")


# What nodectl itself needs of this machine: Python and packages, its own files, programs, folders, the terminal.

_PACKAGE = "nodectl"
# below it, writing what one command keeps may fail in the middle
_LEAST_FREE_BYTES = 256 << 20
_PARTS = ("playbooks", "plugins", "roles")
# program → who needs it here, and the packages that bring it to Debian's and Red Hat's families, and to Homebrew
_OPENSSH = ("openssh-client", "openssh-clients", "openssh")
_PROGRAMS = {
    "ssh": ("playbooks, and hosts that ~/.ssh/config says something of", *_OPENSSH),
    "ssh-keygen": ("keys of your own, and signatures", *_OPENSSH),
}
_INSTALLERS = (("sudo apt-get", 1), ("sudo dnf", 2), ("sudo yum", 2), ("sudo zypper", 2), ("brew", 3))


def installation() -> Iterator[Finding]:
    """Python, the packages that nodectl is built on, its own roles, and which nodectl the shell would start."""
    yield from _python()
    yield from _roles()
    yield from _on_path()


def _python() -> Iterator[Finding]:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    version = ".".join(map(str, sys.version_info[:3]))
    try:
        about = metadata.metadata(_PACKAGE)
        required = metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        actual = f"{version} at {sys.executable}, where nodectl is not installed: what it needs is not known"
        yield here("python", Status.UNKNOWN, actual, remedy=f"{_pip()} install nodectl")
        return
    wanted = about["Requires-Python"] or ""
    status = Status.OK if SpecifierSet(wanted).contains(version, prereleases=True) else Status.FAILED
    remedy = "install nodectl in an environment of a newer Python: python3.12 -m venv ~/nodectl"
    yield here("python", status, f"{version} at {sys.executable}", expected=wanted, remedy=remedy)
    # the others are extras
    needed = [one for one in map(Requirement, required) if one.marker is None or one.marker.evaluate({"extra": ""})]
    faults = [fault for one in needed for fault in _lacking(one.name, str(one.specifier))]
    if not faults:
        yield here("packages", Status.OK, f"{counted(len(needed), 'package')} as nodectl {__version__} asks for them")
    yield from faults


def _lacking(name: str, wanted: str) -> Iterator[Finding]:
    """Yield the finding of a package that is not there, or in another version than nodectl was tested with."""
    from packaging.specifiers import SpecifierSet

    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = ""
    if not version or not SpecifierSet(wanted).contains(version, prereleases=True):
        remedy = f"{_pip()} install {shlex.quote(name + wanted)}"
        actual = version or "not installed"
        yield here("packages", Status.FAILED, actual, expected=wanted or "any version", remedy=remedy, subject=name)


def _pip() -> str:
    return f"{sys.executable} -m pip"


def _roles() -> Iterator[Finding]:
    """Look for the collection beside the package, without which nothing is provisioned."""
    folder = share_dir()
    missing = [name for name in _PARTS if not (folder / name).is_dir()]
    if missing:
        actual = f"no {', '.join(missing)} in {folder}"
        remedy = f"{_pip()} install --force-reinstall --no-deps nodectl=={__version__}"
        yield here("roles", Status.FAILED, actual, expected="the collection nodectl.fleet", remedy=remedy)
        return
    roles = [path for path in (folder / "roles").iterdir() if (path / "tasks").is_dir()]
    yield here("roles", Status.OK, f"{counted(len(roles), 'role')} of nodectl.fleet in {folder}")


def _on_path() -> Iterator[Finding]:
    """Yield whether `nodectl`, as the shell finds it, is this one."""
    places = [Path(folder) / _PACKAGE for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    on_path = list(dict.fromkeys(path.resolve() for path in places if os.access(path, os.X_OK) and path.is_file()))
    this_program = (Path(sys.executable).parent / _PACKAGE).resolve()
    actual = f"{__version__} at {this_program if this_program.exists() else sys.executable}"
    if not on_path:
        remedy = f'export PATH="{this_program.parent}:$PATH"'
        yield here("nodectl", Status.WARNING, f"{actual}; none on PATH", expected="one, on PATH", remedy=remedy)
    elif on_path[0] != this_program:
        remedy = f"rm {on_path[0]}, or put {this_program.parent} first in PATH; then: hash -r"
        yield here("nodectl", Status.WARNING, f"{actual}; the shell finds {on_path[0]}", expected="one", remedy=remedy)
    elif len(on_path) > 1:
        others = ", ".join(map(str, on_path[1:]))
        yield here("nodectl", Status.OK, f"{actual}; further down in PATH: {others}")
    else:
        yield here("nodectl", Status.OK, actual)


def programs() -> Iterator[Finding]:
    """Yield what nodectl starts on this machine."""
    for name, (who, *packages) in _PROGRAMS.items():
        path = shutil.which(name)
        if path is not None:
            yield here("programs", Status.OK, path, subject=name)
        else:
            yield here(
                "programs",
                Status.FAILED if name == "ssh" else Status.WARNING,
                "not on PATH",
                expected=f"OpenSSH's client, for {who}",
                remedy=_install(*packages),
                subject=name,
            )


def _install(*packages: str) -> str:
    """Return the command of this machine's package manager; `packages` as in _PROGRAMS."""
    for installer, family in _INSTALLERS:
        if shutil.which(installer.rpartition(" ")[2], path=f"{os.environ.get('PATH', '')}:{os.defpath}"):
            return f"{installer} install {packages[family - 1]}"
    return f"install {packages[0]}"


def places() -> Iterator[Finding]:
    """Look at the folders in which nodectl keeps what it knows, and what can be made again."""
    for name, folder, variable in zip(("state", "cache"), folders(), ("XDG_STATE_HOME", "XDG_CACHE_HOME"), strict=True):
        yield _folder(name, folder, variable)


def _folder(name: str, folder: Path, variable: str) -> Finding:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    refused = _refused(folder, there)
    if refused:
        owner = f"sudo chown -R {login()} {there}"
        remedy = f"{owner}; or another folder: export {variable}=DIR"
        return here("folders", Status.FAILED, f"{there}: {refused}", expected="writable", remedy=remedy, subject=name)
    free = shutil.disk_usage(there).free
    enough = free >= _LEAST_FREE_BYTES
    return here(
        "folders",
        Status.OK if enough else Status.WARNING,
        f"{folder}, {format_size_rounded(free)} free",
        expected=f"{format_size_rounded(_LEAST_FREE_BYTES)} free",
        remedy=f"df -h {there}; make room there, or another folder: export {variable}=DIR",
        subject=name,
    )


def _refused(folder: Path, there: Path) -> str:
    """Return why nothing can be written in the folder, or it cannot be made below `there`; nothing stays there."""
    if not there.is_dir():
        return "is a file"
    try:
        if there == folder:
            with tempfile.TemporaryFile(dir=folder):
                return ""
        return "" if os.access(there, os.W_OK | os.X_OK) else "no folder can be made there"
    except OSError as error:
        return error.strerror or str(error)


def terminal() -> Iterator[Finding]:
    """Yield whether names and texts of hosts can be shown, and Ansible, which refuses all but UTF-8, would start."""
    named = next((f"{name}={os.environ[name]}" for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    status = Status.OK if is_utf_8() else Status.WARNING
    codec = encoding()
    actual = f"{codec} ({named or 'no LANG'})" if codec else f"{named}: this machine has no such locale"
    expected = "UTF-8: nodectl's playbooks have it all the same, Ansible started by hand does not start"
    yield here("locale", status, actual, expected=expected, remedy=f"export LC_ALL={UTF_8}")


# Ansible as the operator has set it up: where it is, which settings count, and what disturbs.

_PLAYBOOK = "ansible-playbook"
# those that say what is to be done and with what, and disturb nothing
_HARMLESS = {"ANSIBLE_HOME", "ANSIBLE_INVENTORY", "ANSIBLE_CONFIG", "ANSIBLE_LOCAL_TEMP"}


def ansible() -> Iterator[Finding]:
    """Look at Ansible's settings, and whether Ansible started by hand would find this collection."""
    # our own temporary folder is no setting of the operator's
    ansible_home = str(state_dir() / "ansible")
    settings = read_settings()
    of_file = [name for name, origin in settings.origins.items() if origin == settings.file]
    variables = [name for name in settings.variables if os.environ.get(name) != ansible_home]
    shown = f"{settings.file} ({len(of_file)} settings)" if settings.file else "no ansible.cfg"
    yield here("ansible", Status.OK, f"{settings.version}; {shown}", subject="settings")
    if settings.passed_over:
        remedy = "chmod o-w ." if "everybody" in settings.passed_over else "unset ANSIBLE_CONFIG, or correct it"
        yield _disturbs(settings.passed_over, "an ansible.cfg that counts", remedy, "ansible.cfg")
    if not settings.host_key_checking:
        origin = settings.origins.get("HOST_KEY_CHECKING", "ansible.cfg")
        actual = f"host_key_checking is off ({origin}), which nodectl overrules, and playbooks of yours obey"
        yield _disturbs(actual, "keys are checked", "take it out; then: nodectl hostkeys accept", "host keys")
    disturbing = sorted(set(variables) - _HARMLESS)
    if disturbing:
        actual = f"set in this shell, over ansible.cfg: {few(disturbing, 8)}"
        yield _disturbs(actual, "none by mistake", f"unset {' '.join(disturbing)}", "environment")
    for name, meant in settings.misspelt_variables.items():
        yield _disturbs(f"{name} sets nothing", f"{meant}?", f"unset {name}; export {meant}=…", "environment")
    yield _collection(settings.collections)


def _disturbs(actual: str, expected: str, remedy: str, subject: str) -> Finding:
    return here("ansible", Status.WARNING, actual, expected=expected, remedy=remedy, subject=subject)


def program() -> Iterator[Finding]:
    """Look for the ansible-playbook that provisioning starts: beside the interpreter, else on PATH."""
    beside = Path(sys.executable).parent
    path = shutil.which(_PLAYBOOK, path=os.pathsep.join([str(beside), os.environ.get("PATH", os.defpath)]))
    if path is None:
        remedy = f"{sys.executable} -m pip install --force-reinstall ansible-core"
        yield here("programs", Status.FAILED, "not on PATH", expected="ansible-core", remedy=remedy, subject=_PLAYBOOK)
    else:
        yield here("programs", Status.OK, path, subject=_PLAYBOOK)


def _collection(folders: Sequence[str]) -> Finding:
    this_collection = (collections_dir() / COLLECTION).resolve()
    places = [Path(folder).expanduser() / COLLECTION for folder in folders]
    others = [str(path) for path in places if path.is_dir() and path.resolve() != this_collection]
    if not others:
        return here("ansible", Status.OK, f"nodectl.fleet in {this_collection}", subject="collection")
    actual = f"another nodectl.fleet in {few(others)}, which playbooks of yours take; nodectl takes {this_collection}"
    return _disturbs(actual, "one", f"rm -r {others[0]}", "collection")


# What logs in to the hosts: ssh_config, the agent, private keys, and known_hosts.

_ANYBODY = Host("localhost", "localhost")
_AGENT_S = 2.0
_OTHERS = 0o077


def logins(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Look at what these hosts are logged in to with; without hosts, at what any host would be offered."""
    servers = [host for host in hosts if host.connection == "ssh"]
    if hosts and not servers:
        yield here("keys", Status.SKIPPED, "no host is reached by SSH")
        return
    targets: dict[Target, Host] = {}
    complaints: dict[str, NodectlError] = {}
    for host in servers or [_ANYBODY]:
        try:
            targets.setdefault(target_of(host), host)
        except NodectlError as error:
            # OpenSSH's words for a file that it refuses are the same for every host, but for the host's name
            complaints.setdefault(error.message.replace(host.address, "HOST"), error)
    for complaint in complaints.values():
        yield here(
            "ssh_config", Status.FAILED, complaint.message, expected="files that OpenSSH reads", remedy=complaint.remedy
        )
    if targets:
        yield from _keys(targets)
        yield from _known_hosts(list(targets), is_fleet=bool(servers))


def _keys(targets: dict[Target, Host]) -> Iterator[Finding]:
    """Yield a finding for each set of keys that a host would be offered."""
    yield from _agents(targets)
    seen_ways = set()
    with closing(SshClient()) as client:
        for target, host in targets.items():
            ways = (target.identity_files, target.identities_only, target.identity_agent)
            if ways in seen_ways or password_of(host) is not None:
                continue
            seen_ways.add(ways)
            offered, unusable = client.credentials(target)
            if offered:
                yield here("keys", Status.OK, f"{counted(len(offered), 'key')} to offer: {few(_from(offered))}")
            else:
                yield _no_key(target, unusable)
    paths = dict.fromkeys(path for target in targets for path in target.identity_files)
    open_to_all = [path for path in paths if path.is_file() and path.stat().st_mode & _OTHERS]
    if open_to_all:
        actual = f"others may read {', '.join(map(str, open_to_all))}"
        remedy = shlex.join(["chmod", "600", *map(str, open_to_all)])
        yield here("keys", Status.WARNING, actual, expected="keys that OpenSSH takes", remedy=remedy, subject="mode")


def _from(sources: Sequence[str]) -> list[str]:
    """Files by their names, and how many keys the agent has."""
    held = sources.count("agent")
    return [source for source in sources if source != "agent"] + ([f"{held} of the agent"] if held else [])


def _no_key(target: Target, unusable: Sequence[str]) -> Finding:
    locked = [path for path in target.identity_files if any(why.startswith(f"{path}: encrypted") for why in unusable)]
    agent = "" if _agent_of(target) else 'eval "$(ssh-agent -s)"; '
    if locked:
        remedy = f"{agent}ssh-add {locked[0]}"
    elif any(path.exists() for path in target.identity_files):
        remedy = "name another key: --private-key FILE"
    elif len(target.identity_files) == 1:
        remedy = "name one that is there: ansible_ssh_private_key_file, or --private-key FILE"
    else:
        remedy = "ssh-keygen -t ed25519; then, for each host: ssh-copy-id USER@HOST"
    actual = f"none to offer: {few(list(unusable))}" if unusable else "none to offer"
    expected = "a key in a file or in the agent, or a password (-k)"
    return here("keys", Status.WARNING, actual, expected=expected, remedy=remedy)


def _agents(targets: dict[Target, Host]) -> Iterator[Finding]:
    """Yield whether the agents that are named answer; who has none needs none."""
    agents = dict.fromkeys(agent for agent in map(_agent_of, targets) if agent)
    if not agents:
        yield here("agent", Status.SKIPPED, "none is named (SSH_AUTH_SOCK)")
    for agent in agents:
        why = _silent(agent)
        if why:
            remedy = 'unset SSH_AUTH_SOCK, or start one: eval "$(ssh-agent -s)"; ssh-add'
            yield here("agent", Status.WARNING, f"{agent}: {why}", expected="an agent that answers", remedy=remedy)
        else:
            yield here("agent", Status.OK, f"answers at {agent}")


def _agent_of(target: Target) -> str:
    named = target.identity_agent
    return os.environ.get("SSH_AUTH_SOCK", "") if named is None else os.path.expandvars(named)


def _silent(agent: str) -> str:
    """Return why nobody listens at the socket."""
    with socket.socket(socket.AF_UNIX) as ours:
        ours.settimeout(_AGENT_S)
        try:
            ours.connect(agent)
        except OSError as error:
            return error.strerror or str(error)
    return ""


def _known_hosts(targets: Sequence[Target], *, is_fleet: bool) -> Iterator[Finding]:
    """Look at the files and how many of the hosts they name; whether a host shows that key, it says itself."""
    files = dict.fromkeys(path for target in targets for path in target.known_hosts_files)
    unreadable = [path for path in files if path.exists() and not os.access(path, os.R_OK)]
    for path in unreadable:
        remedy = f"sudo chown {os.geteuid()} {path}; chmod 600 {path}"
        yield here("known_hosts", Status.FAILED, f"{path} cannot be read", expected="readable", remedy=remedy)
    there = [path for path in files if path not in unreadable and path.is_file()]
    if is_fleet:
        named = [one for one in targets if known_hosts(one.known_hosts_files).entries(one.key_name, one.port)]
        where = f" in {_shown(there)}" if there else ", for there is no such file"
        actual = f"{len(named)} of {counted(len(targets), 'address', 'addresses')} named{where}"
        # a host that shows a key says so itself: this is for those that do not answer
        remedy = "compare the fingerprints with the hosts' own, then: nodectl hostkeys accept"
        status = Status.OK if len(named) == len(targets) else Status.WARNING
        yield here("known_hosts", status, actual, expected="every address", remedy=remedy)
    elif not unreadable:
        yield here("known_hosts", Status.OK, _shown(there) or "none yet")


def _shown(paths: Sequence[Path]) -> str:
    return few([str(path) for path in paths])


def data() -> Iterator[Finding]:
    """Look at the facts of others that nodectl holds a copy of: which are older than they are taken for true."""
    for path, head in published_files():
        ends, today = head["valid_until"], date.today()
        actual = f"read on {head['read_on']}, taken for true until {ends}"
        status = Status.OK if ends >= today else Status.WARNING
        yield here("data", status, actual, subject=path.name, expected="no older", remedy="install a newer nodectl")
