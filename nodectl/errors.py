"""Every error that nodectl raises on purpose: what happened, and what to do about it."""


class NodectlError(Exception):
    """An error with a remedy; `exit_status` is what the command line ends with."""

    exit_status = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class UsageError(NodectlError):
    """The operator asked for something that does not exist or does not fit together."""

    exit_status = 2


class InventoryError(UsageError):
    """The inventory cannot be read, or holds no such host."""


class ProfileError(UsageError):
    """A profile is unknown or malformed."""


class ParseError(NodectlError):
    """A tool's output cannot be read; the message names the line and its text."""


class LabError(NodectlError):
    """The lab cannot be brought up, down or into the wanted state on this machine."""


class ProvisionError(NodectlError):
    """Ansible could not be run, or did not finish."""


class JobError(NodectlError):
    """A job cannot be planned, started, followed or stopped."""


class UnreachableError(NodectlError):
    """Something could not be told or reached (exit status 3)."""

    exit_status = 3
