"""The fault matrix: each kind of fault on one of the hosts of a dressed lab, and what nodectl says of it.

usage: scripts/faults.py [--hosts N] [--recording NAME] [--at-once N] [--write-docs] [KIND ...]

The last line is JSON: {"name": "faults", "kinds": …, "found": …, "false_alarms": …}. Exit status 1 if a kind was not
found by its check on its host, another host had a finding, or a healthy fleet had one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodectl.common.declarations import ended
from nodectl.common.nodeset import fold
from nodectl.common.resources import recordings_dir
from nodectl.lab.faults import FAULTS, Fault, break_host, heal_hosts
from nodectl.lab.state import LabFolder, locked
from nodectl.profiles.gpus import is_composed
from tests.lab.recorded_faults import RECORDED_FAULTS, RecordedFault, say_faults

# recorded kinds are a table of the tests; the two that `lab fault` has, too, are tried as it makes them
_KINDS: dict[str, Fault | RecordedFault] = RECORDED_FAULTS | {
    n: each for n, each in FAULTS.items() if not each.simulated
}
_LAB = "faults"
_DOCS = Path(__file__).resolve().parents[1] / "docs" / "faults.md"
_TABLE = "<!-- table: scripts/faults.py --write-docs -->"
_HEAD = "| kind | what | found by | status, action |\n|---|---|---|---|"
_QUIET = ("ok", "skipped")
# tcp alone takes two partners for each host; memory's own defaults are short
_PROBE = {"tcp": ("--duration", "1", "--repetitions", "1", "--rounds", "2")}
_RUN_S = 600


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome of one kind: the checks that saw it on its host, and who else was said to be wrong."""

    fault: Fault | RecordedFault
    host: str
    seen: tuple[tuple[str, str, str], ...]
    others: tuple[tuple[str, str], ...]

    @property
    def found(self) -> bool:
        """Return whether a check that has to see the kind did."""
        return any(check in self.fault.checks for check, _, _ in self.seen)


def main() -> None:
    """Bring the lab up, try every kind, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--recording", default="dgx-a100")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="recorded kinds in one look (default 1)")
    parser.add_argument("--write-docs", action="store_true", help=f"put the rows into docs/{_DOCS.name}")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="default: all")
    options = parser.parse_args()
    if not 1 <= options.at_once <= options.hosts // 2:
        parser.error(f"--at-once leaves half of the {options.hosts} hosts without a fault: 1 to {options.hosts // 2}")
    if os.geteuid() != 0:
        parser.error("a lab needs root: run it with sudo")
    kinds = {**_KINDS, **(FAULTS if is_composed(options.recording) else {})}
    unknown = sorted(set(options.kinds) - set(kinds))
    if unknown:
        parser.error(f"no fault {', '.join(unknown)}; see `nodectl lab fault --list` and tests/lab/recorded_faults.yml")
    began = time.monotonic()
    alarms = _healthy_recordings()
    rows: list[Row] = []
    with _lab(options.hosts, options.recording) as (inventory, hosts):
        alarms += _healthy(inventory, "before the first fault")
        for faults in _batches([kinds[kind] for kind in options.kinds or _KINDS], options.at_once):
            # each look begins with the next host
            places = hosts[len(rows) % len(hosts) :] + hosts[: len(rows) % len(hosts)]
            tried = _try(dict(zip(places, faults, strict=False)), inventory)
            print("\n".join(map(_line, tried)), flush=True)
            rows.extend(tried)
        alarms += _healthy(inventory, "after the last one was healed")
    print("\n".join(["", _HEAD, *map(_row, rows)]))
    print(f"{len(rows)} kinds in {time.monotonic() - began:.0f} s")
    if options.write_docs:
        _write_docs(rows)
    found, alarms = sum(row.found for row in rows), alarms + sum(len(row.others) for row in rows)
    print(json.dumps({"name": "faults", "kinds": len(rows), "found": found, "false_alarms": alarms}))
    sys.exit(0 if found == len(rows) and alarms == 0 else 1)


@contextmanager
def _lab(count: int, recording: str) -> Iterator[tuple[str, list[str]]]:
    """Yield a lab of this script's own: its inventory and its hosts."""
    # outside of the try: a lab that stood there before is somebody else's
    inventory = _nodectl("lab", "up", "--name", _LAB, "-n", str(count), "--as", recording).stdout.strip()
    try:
        status = json.loads(_nodectl("lab", "status", "--name", _LAB, "--output", "json").stdout)
        yield inventory, [host["name"] for host in status["hosts"]]
    finally:
        _nodectl("lab", "down", "--name", _LAB)


def _batches(faults: Sequence[Fault | RecordedFault], at_once: int) -> Iterator[Sequence[Fault | RecordedFault]]:
    """Yield what is tried in one look: alone what is real, needs load or names a second host."""
    together: list[Fault | RecordedFault] = []
    for fault in faults:
        if isinstance(fault, Fault) or fault.takes_two:
            yield [fault]
        else:
            together.append(fault)
    yield from (together[at : at + at_once] for at in range(0, len(together), at_once))


def _try(faults: Mapping[str, Fault | RecordedFault], inventory: str) -> list[Row]:
    """Break each host in its way, look at the fleet, heal it; return a row for each."""
    folder = LabFolder.named(_LAB)
    try:
        with locked():
            for host, fault in faults.items():
                if isinstance(fault, Fault):
                    break_host(folder, fault.name, host)
                else:
                    say_faults(inventory, host, [fault.name])
        first = next(iter(faults.values()))
        findings = _probed(inventory, first) if first.load else _judged(inventory)
    finally:
        with locked():
            heal_hosts(folder, None)
            for host, fault in faults.items():
                if isinstance(fault, RecordedFault):
                    say_faults(inventory, host, [])
    return [_row_of(fault, host, findings, set(faults) - {host}) for host, fault in faults.items()]


def _row_of(
    fault: Fault | RecordedFault, host: str, findings: Sequence[Mapping[str, Any]], beside: Collection[str]
) -> Row:
    """Return what became of the kind on its host; the hosts `beside` it have kinds of their own."""
    own = {(finding["check"], finding["status"], finding["action"]) for finding in findings if finding["host"] == host}
    others = tuple(
        (finding["host"], finding["check"])
        for finding in findings
        if finding["host"] not in (host, *beside) and not (fault.takes_two and finding["check"] in fault.checks)
    )
    return Row(fault, host, tuple(sorted(own)), others)


def _judged(inventory: str) -> list[Mapping[str, Any]]:
    """Return the findings of `health` that are not well."""
    return _findings(_nodectl("-i", inventory, "--output", "json", "health", check=False))


def _probed(inventory: str, fault: Fault | RecordedFault) -> list[Mapping[str, Any]]:
    """Return the findings on hosts of the probe that the kind needs, not those on paths that fail with them."""
    findings: list[Mapping[str, Any]] = []
    for probe in fault.checks:
        arguments = ("-i", inventory, "--output", "json", "probe", probe, *_PROBE.get(probe, ()))
        findings += _findings(_nodectl(*arguments, check=False))
    return [finding for finding in findings if finding["kind"] == "host"]


def _findings(done: subprocess.CompletedProcess[str]) -> list[Mapping[str, Any]]:
    try:
        document = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"{' '.join(done.args[3:])} ended with {done.returncode}: {done.stderr[-2000:]}")
    return [finding for finding in document["findings"] if finding["status"] not in _QUIET]


def _healthy(inventory: str, when: str) -> int:
    """How many findings a fleet has on which no fault stands."""
    return _alarms(when, _judged(inventory))


def _healthy_recordings() -> int:
    """Return the same for all bundled recordings."""
    alarms = 0
    for folder in sorted(recordings_dir().iterdir()):
        findings = _findings(_nodectl("--replay", folder.name, "--output", "json", "health", check=False))
        print(f"{folder.name}: {len(findings)} findings", flush=True)
        alarms += _alarms(folder.name, findings)
    return alarms


def _alarms(where: str, findings: Sequence[Mapping[str, Any]]) -> int:
    for finding in findings:
        print(f"{where}: {finding['host']} {finding['check']}: {finding['actual']}", flush=True)
    return len(findings)


def _nodectl(*args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nodectl", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_S, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"nodectl {' '.join(args)} ended with {done.returncode}: {done.stderr.strip()}")
    return done


def _line(row: Row) -> str:
    verdict = "found" if row.found and not row.others else "NOT FOUND" if not row.found else "FALSE ALARM"
    seen = ", ".join(f"{check} ({status})" for check, status, _ in row.seen) or "nothing"
    wrong = "; ".join(f"{name}: {check}" for name, check in row.others)
    return f"{verdict:<11} {row.fault.name:<24} {row.host}: {seen}" + (f"; but also {wrong}" if wrong else "")


def _row(row: Row) -> str:
    """Return a row for the page: the check that has to see the kind, and what it asks for."""
    expected = [(check, status, action) for check, status, action in row.seen if check in row.fault.checks]
    by = ", ".join(f"`{check}`" for check, _, _ in expected) or "**not found**"
    verdict = "; ".join(dict.fromkeys(f"{status}, {action}" for _, status, action in expected))
    return f"| `{row.fault.name}` | {row.fault.about} | {by} | {verdict} |"


def _write_docs(rows: Sequence[Row]) -> None:
    """Put the rows of kinds that `lab fault` has into the page, in place of those that it has for the same kinds."""
    head, _, table = _DOCS.read_text(encoding="utf-8").partition(_TABLE)
    lines = {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")}
    lines |= {row.fault.name: _row(row) for row in rows if isinstance(row.fault, Fault)}
    known = "\n".join(lines[kind] for kind in FAULTS if kind in lines)
    last = table.strip().splitlines()[-1]
    if len(rows) == len(_KINDS):
        found, wrong = sum(row.found for row in rows), sum(len(row.others) for row in rows)
        last = f"{len(rows)} kinds on {fold(sorted({row.host for row in rows}))}, {found} found, {wrong} false alarms."
    _DOCS.write_text(f"{head}{_TABLE}\n\n{_HEAD}\n{known}\n\n{last}\n", encoding="utf-8")


if __name__ == "__main__":
    ended(main)
