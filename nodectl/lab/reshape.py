"""Another rate for the links of a lab that is up, and the former one again afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from nodectl.common.paths import state_dir
from nodectl.common.process import interruptible
from nodectl.errors import LabError, NodectlError, UsageError
from nodectl.lab.network import host_shaping, port_name, port_shaping, run_tc
from nodectl.lab.spec import show_rate
from nodectl.lab.state import LabFolder, LabState, locked
from nodectl.lab.syscalls import inside_network
from nodectl.model.host import Host

# faults that live in a port's shaping, which a new rate would undo
_IN_SHAPING = {"loss", "mtu-hole", "slow-link"}
# in which an impatient second signal does not keep the links from their former rate
_RESTORE_S = 30.0


def lab_of(hosts: Sequence[Host]) -> LabFolder | None:
    """Return the operator's lab that has these hosts, by name and address; None if no lab that is up has them."""
    wanted = {(host.name, host.address) for host in hosts}
    for journal in sorted((state_dir() / "lab").glob("*/lab.json")):
        folder = LabFolder(journal.parent.resolve())
        state = folder.read()
        if state and state.complete and wanted <= {(host.name, host.address) for host in state.hosts}:
            return folder
    return None


def set_rate(folder: LabFolder, rate_bits: int) -> None:
    """Shape every link of the lab again, each way; 0 takes the shaping away."""
    with locked():
        state = folder.running()
        _refuse(folder, state)
        spec = replace(state.spec, rate_bits=rate_bits)
        for host in state.hosts:
            if host.process and host.up:
                with inside_network(f"/proc/{host.process.pid}/ns/net"):
                    run_tc([*_cleared("eth0"), *host_shaping(spec)])
        ports = [port_name(index) for index in range(len(state.hosts))]
        with inside_network(folder.switch):
            run_tc([line for port in ports for line in (*_cleared(port), *port_shaping(port, spec, state.link))])
        folder.write(replace(state, spec=spec))


@contextmanager
def shaping(folder: LabFolder) -> Iterator[Callable[[int], None]]:
    """Give what sets the rate; at the end, however it comes, the former rate is set again."""
    state = folder.running()
    _refuse(folder, state)
    before, given = state.spec.rate_bits, list[int]()

    def put_on(rate_bits: int) -> None:
        given.append(rate_bits)
        set_rate(folder, rate_bits)

    with interruptible(deaf_s=_RESTORE_S):
        try:
            yield put_on
        finally:
            if given:
                _restore(folder, before)


def described(rate_bits: int) -> str:
    """Return `1gbit`, or that there is none."""
    return show_rate(rate_bits) if rate_bits else "unlimited"


def _restore(folder: LabFolder, before: int) -> None:
    now, name = described(folder.running().spec.rate_bits), folder.name
    try:
        set_rate(folder, before)
    except NodectlError as error:
        message = f"the links of the lab '{name}' keep {now}: {error.message}"
        raise LabError(message, f"{error.remedy}; `nodectl lab down --name {name}` and up again") from error


def _refuse(folder: LabFolder, state: LabState) -> None:
    if state.link == "wire":
        message = f"the rate of the lab '{folder.name}' is fixed: a process carries its links (--delay or --loss)"
        raise UsageError(message, "bring up a lab without them")
    broken = sorted(f"{fault.host}: {fault.kind}" for fault in state.faults if fault.kind in _IN_SHAPING)
    if broken:
        message = f"links of the lab '{folder.name}' have faults: {', '.join(broken)}"
        raise UsageError(message, f"run `nodectl lab heal --name {folder.name}`")


def _cleared(interface: str) -> tuple[str, ...]:
    """Whatever queues there, it is gone: one that can always be put in its place, and is then taken away."""
    return (f"qdisc replace dev {interface} root handle f0: pfifo", f"qdisc del dev {interface} root")
