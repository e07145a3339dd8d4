"""A trial as a process that tests may kill: arms the hosts, puts settings on as it is told, and says what it sees.

    python -m tests.trials.arming.driver INVENTORY LEASE_S [--limit PATTERN]

Lines on standard input: `on PROFILE` (`small` is one of this driver), `lost`, `end`.
A JSON line for each answer on standard output.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodectl.common.documents import new_id
from nodectl.transport.inventory.read import Inventory
from nodectl.transport.router import open_transport
from nodectl.trials.arming import armed

# as article-20g, but for a smaller buffer
_SMALL = """\
description: tried
sysctl:
  net.core.rmem_max: {value: 16777216, never_lower: true, why: tried}
  net.core.wmem_max: {value: 16777216, never_lower: true, why: tried}
  net.ipv4.tcp_rmem: {value: "4096 131072 212992", never_lower: false, why: tried}
  net.ipv4.tcp_wmem: {value: "4096 65536 16777216", never_lower: true, why: tried}
"""


def say(event: str, **more: Any) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps({"event": event, **more}) + "\n")
    sys.stdout.flush()


def main(source: str, lease_s: float, limit: str | None) -> None:
    """Until `end`, the end of the input, or an interruption."""
    profiles = Path(source).parent / "profiles" / "tuning"
    profiles.mkdir(parents=True, exist_ok=True)
    (profiles / "small.yml").write_text(_SMALL)
    inventory, transport = Inventory.read([source]), open_transport()
    hosts = inventory.hosts(limit)
    findings: tuple[Any, ...] = ()
    try:
        with armed(
            inventory.sources,
            hosts,
            transport,
            trial=new_id(datetime.now(UTC)),
            purpose="a test",
            note=lambda text: say("note", text=text),
            environment={},
            nccl_of=lambda profile, host: {},
            lease_s=lease_s,
        ) as trial:
            say("armed", hosts=[host.name for host in trial.hosts], findings=[asdict(each) for each in trial.findings])
            trial.findings = ()
            for line in sys.stdin:
                word, _, name = line.strip().partition(" ")
                if word == "on":
                    say("on", setting=name, findings=[asdict(each) for each in trial.put_on(name)])
                elif word == "lost":
                    say("lost", hosts=dict(trial.lost()))
                elif word == "end":
                    break
    except KeyboardInterrupt:
        say("interrupted")
    findings = trial.findings
    say("left", findings=[asdict(each) for each in findings])
    transport.close()


if __name__ == "__main__":
    # tests that were started by nohup would pass its deafness on
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    options = sys.argv[3:]
    pattern = options[options.index("--limit") + 1] if "--limit" in options else None
    main(sys.argv[1], float(sys.argv[2]), pattern)
