"""Software RDMA devices, which tests use, and whether this host could have one."""

from dataclasses import dataclass

from nodectl.facts.base import script, text_fact

_SHOW = """\
for each in /sys/class/infiniband/rxe_*; do [ ! -e "$each" ] || printf 'device %s\\n' "${each##*/}"; done
[ -d /sys/module/rdma_rxe ] || modinfo rdma_rxe >/dev/null 2>&1 || echo 'cannot its kernel has no module rdma_rxe'
[ -d /run/systemd/system ] || echo 'cannot no systemd to bring it up at boot'
exit 0
"""


@dataclass(frozen=True, slots=True)
class SoftRoce:
    """The devices' names, rxe_INTERFACE; `cannot` is why the host can have none, empty where it can."""

    devices: tuple[str, ...]
    cannot: str


def _parse(text: str) -> SoftRoce:
    rows = [line.split(" ", 1) for line in text.splitlines()]
    cannot = [text for kind, text in rows if kind == "cannot"]
    return SoftRoce(tuple(text for kind, text in rows if kind == "device"), cannot[0] if cannot else "")


def _words(soft: SoftRoce) -> str:
    return ", ".join(soft.devices) or "none"


FACT = text_fact("soft_roce", script("soft-roce", _SHOW), _parse, _words, row=215, occasion="live")
