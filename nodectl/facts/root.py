"""What only root sees: the collector asks `sudo -n` where the login is not root."""

from nodectl.facts.base import NOT_INSTALLED, AbsentError, UnknownError, entry
from nodectl.model.recording import Command, Recording

# `nodectl sudoers` prints exactly these; a host that does not allow them is unknown there, not failed
ROOT_ARGV = {"dmesg": ("dmesg",), "lspci-acs": ("lspci", "-D", "-vvv")}


def root_command(key: str) -> Command:
    """The command of that key, as root."""
    return Command(key, ROOT_ARGV[key], deadline_s=20, hardware=True, root=True)


def as_root(recording: Recording, key: str) -> str:
    """The output of a command that root ran; Unknown where sudo would not."""
    argv, there = ROOT_ARGV[key], recording.entries.get(key)
    if there is not None and there.exit_status == NOT_INSTALLED:
        raise AbsentError(f"{argv[0]} is not installed")
    found = entry(recording, key)
    if found.exit_status != 0 and found.stderr.startswith("sudo:"):
        raise UnknownError(f"`{' '.join(argv)}` needs root, and sudo wants a password: see `nodectl sudoers`")
    if found.exit_status != 0:
        raise UnknownError(f"{argv[0]}: {found.stderr.strip() or found.exit_status}")
    return found.stdout
