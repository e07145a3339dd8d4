"""What DeepSpeed is when a job imports it, and the two files that it reads."""

from dataclasses import dataclass

from nodectl.common import node_paths
from nodectl.facts.base import Fact, file_text
from nodectl.facts.torch_import import Imported, import_command, read_import
from nodectl.model.recording import Command, Recording

_CONFIG = Command("deepspeed-config", ("cat", f"{node_paths.ROOT}/etc/ds_config.json"))
_HOSTFILE = Command("deepspeed-hostfile", ("cat", f"{node_paths.ROOT}/etc/hostfile"))


@dataclass(frozen=True, slots=True)
class DeepSpeed:
    """The package as imported, and the texts of its files; None where there is none."""

    package: Imported
    config: str | None
    hostfile: str | None


def _read(recording: Recording) -> DeepSpeed:
    package = read_import(recording, "deepspeed")
    return DeepSpeed(package, file_text(recording, _CONFIG.key), file_text(recording, _HOSTFILE.key))


FACT = Fact(
    "deepspeed",
    lambda host: (import_command("deepspeed", host), _CONFIG, _HOSTFILE),
    _read,
    lambda value: value.package.error or f"deepspeed {value.package.version}",
    row=506,
    occasion="verify",
)
