"""What health says of a host's profiles: what they come to, or the finding that tells why that is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodectl.checks.judge import no_profile, profile_warning
from nodectl.errors import ProfileError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.profiles.compat import IncompatibleError
from nodectl.profiles.host import of_host
from nodectl.profiles.resolve import Resolved


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a host should be, None where that is not known; and the findings about its profiles."""

    resolved: Resolved | None
    findings: tuple[Finding, ...] = ()


def wanted_of(host: Host, names: Mapping[str, str], extra_dirs: Sequence[Path]) -> Wanted:
    """The host's profiles, merged and validated as for Ansible; `names` go before the host's own variables."""
    try:
        resolved = of_host(host, names=names, extra_dirs=extra_dirs)
    except ProfileError as error:
        impossible = isinstance(error, IncompatibleError)
        return Wanted(None, (no_profile(host.name, error.message, error.remedy, impossible=impossible),))
    if resolved is None or "stack" not in resolved.names:
        remedy = "set nodectl_stack in the inventory, or give --stack"
        return Wanted(resolved, (no_profile(host.name, "nodectl_stack is not set", remedy, impossible=False),))
    return Wanted(resolved, tuple(profile_warning(host.name, n, text) for n, text in enumerate(resolved.warnings, 1)))
