"""A tuner plug-in on the hosts, asked before it is proposed: it has to choose as the lines say, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.errors import NodectlError
from nodectl.model.host import Host
from nodectl.probes.events import failure, run_program
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.trials.bysize import FUNCTIONS

_ASK_S = 60.0
_CRASHES = "NVIDIA's example of NCCL before 2.30 crashes so (NVIDIA/nccl pull request 1903): build a later one"
_ONE_CHANNEL = "NVIDIA's example (to 2.30.7) begins with one channel: build it with *nChannels = 0 in pluginGetCollInfo"


def refuse_wrong_plugin(
    transport: Transport, hosts: Sequence[Host], plugin: str, lines: Sequence[str], forks: int
) -> None:
    """Raise NodectlError where the plug-in on a host does not choose what the lines say, at either end of each."""
    nodes, ranks = lines[0].split(",")[6:8]
    wanted = _wanted(lines)
    args = ["choose", "--plugin", plugin, "--nodes", nodes, "--ranks", ranks, "--places", ",".join(wanted)]
    stdin = "".join(f"{line}\n" for line in lines).encode()

    def ask(host: Host) -> str:
        done, events = run_program(transport, host, "probes.nccl.tuner", args, timeout_s=_ASK_S, stdin=stdin)
        told = {event["place"]: event["choice"] for event in events.of("choice")}
        wrong = next((place for place in told if told[place] != wanted.get(place)), "")
        if wrong:
            return f"it chooses {told[wrong]} for {wrong}, and should {wanted[wrong]}. {_ONE_CHANNEL}"
        if not done.ok or told.keys() != wanted.keys():
            reason, _ = failure(done, events)
            return f"{reason}. {_CRASHES}" if "SEGV" in reason else reason
        return ""

    for host, reason in fan_out(hosts, ask, forks):
        if reason:
            what = f"{host.name}: the tuner plug-in {plugin} cannot be used: {reason}"
            raise NodectlError(what, "without --plugin what a variable can say is written")


def _wanted(lines: Sequence[str]) -> dict[str, list[object]]:
    """Return the choice at both ends of each line, and at a byte and far above them, which is NCCL's own."""
    wanted: dict[str, list[object]] = {
        f"{name}:{size}": [None, None, 0] for name in FUNCTIONS.values() for size in (1, 1 << 40)
    }
    for line in lines:
        name, low, high, algorithm, protocol, channels = line.split(",")[:6]
        wanted |= {f"{name}:{size}": [algorithm, protocol, max(0, int(channels))] for size in (low, high)}
    return wanted
