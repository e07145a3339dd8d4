"""Another rate for the links of a lab that is up, and the former one again afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType

from nodectl.common.paths import state_dir
from nodectl.errors import LabError, NodectlError, UsageError
from nodectl.lab.network import port_name
from nodectl.lab.shape import host_shaping, port_shaping, run_tc
from nodectl.lab.spec import show_rate
from nodectl.lab.state import LabFolder, LabState, locked
from nodectl.lab.syscalls import inside_network
from nodectl.model.host import Host

# faults that live in a port's shaping, which a new rate would undo
_IN_SHAPING = {"loss", "mtu-hole", "slow-link"}
_ENDS = (signal.SIGTERM, signal.SIGHUP)


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
    before = state.spec.rate_bits
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDS:
                stack.callback(signal.signal, number, signal.signal(number, _end))
        rates = _Rates(folder, before)
        stack.callback(rates.set_back)
        yield rates.set


def described(rate_bits: int) -> str:
    """Return `1gbit`, or that there is none."""
    return show_rate(rate_bits) if rate_bits else "unlimited"


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@dataclass(slots=True)
class _Rates:
    """Sets rates until the former one is set again: a thread that comes later changes nothing."""

    folder: LabFolder
    before: int
    over: bool = False
    # also if that failed half-way, which the journal does not tell
    touched: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def set(self, rate_bits: int) -> None:
        with self.lock:
            if not self.over:
                self.touched = True
                set_rate(self.folder, rate_bits)

    def set_back(self) -> None:
        """Put the links back as they were; a second Ctrl-C comes after that."""
        in_main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, *_ENDS) if in_main else ()
        former = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
        try:
            with self.lock:
                self.over = True
                if self.touched:
                    self._restore()
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _restore(self) -> None:
        now, name = described(self.folder.running().spec.rate_bits), self.folder.name
        try:
            set_rate(self.folder, self.before)
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
