"""Which pairs a probe measures, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodectl.probes.base import ProbeOptions
from nodectl.probes.endpoints import Endpoint
from nodectl.probes.pairs import resolved, rounds_for
from nodectl.probes.rounds import near_before_far, sampled


def planned_rounds(
    ready: Sequence[Endpoint], switches: Mapping[str, str], options: ProbeOptions
) -> tuple[str, list[list[tuple[Endpoint, Endpoint]]]]:
    """What is measured, as a word for the operator and as rounds; near pairs first where the switches are known."""
    if options.rounds is not None:
        return f"sample of {options.rounds}", sampled(ready, options.rounds)
    mode = resolved(options.pairs, len(ready))
    if mode == "all" and len(set(switches.values())) > 1:
        return "all, same switch first", near_before_far(ready, lambda each: switches[each.host.name])
    return mode, rounds_for(mode, ready)
