"""What every command says of the bundled recordings, and which files every tuning writes: one folder, for `diff -r`.

    scripts/snapshot.py OUT [--checkout DIR] [--no-lab]

Run it before and after a change that must not be seen from outside, the second time with --checkout where the former
state lies elsewhere (with its own .venv), and compare the two folders. Each file holds the exit status, then standard
output and standard error of one command. With a lab (root) the plays run on a fresh host for each tuning, and the files
that they wrote there are kept too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_OUTPUTS = ("json", "table")
_TIMEOUT_S = 600
# folders of a host in which roles write
_WRITTEN = "find /etc /opt/nodectl/bin /opt/nodectl/etc -newer /etc/nodectl-before -type f"
_PASSED_OVER = ("/etc/resolv.conf", "/etc/mtab", "/etc/nodectl-before", "/etc/ld.so.cache")


@dataclass(frozen=True, slots=True)
class Checkout:
    """A state of the repository with the Python that runs it."""

    root: Path
    state: Path

    def nodectl(self, *args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Return the finished command; its state folder is its own, so that no earlier reading is compared with."""
        with tempfile.TemporaryDirectory(dir=self.state) as state:
            variables = {k: v for k, v in os.environ.items() if not k.startswith(("NODECTL_", "ANSIBLE_"))}
            variables |= {"XDG_STATE_HOME": state, "XDG_CONFIG_HOME": state, "PYTHONPATH": str(self.root)}
            variables |= {"COLUMNS": "160", "ANSIBLE_HOME": state, **(env or {})}
            return subprocess.run(
                [str(self.root / ".venv" / "bin" / "python"), "-m", "nodectl", *args],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                cwd=self.root,
                env=variables,
                check=False,
            )


def main() -> int:
    """Write the folder; 1 if it is there already."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--checkout", type=Path, default=_ROOT)
    parser.add_argument("--no-lab", action="store_true")
    options = parser.parse_args()
    if options.out.exists():
        print(f"{options.out} is there already: name a new folder", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as state:
        checkout = Checkout(options.checkout.resolve(), Path(state))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for name, text in pool.map(lambda args: (file_name(args), output_of(checkout, args)), commands(checkout)):
                (options.out / name).write_text(text)
        if not options.no_lab:
            tunings_on_a_lab(checkout, options.out / "written")
    print(f"{len(list(options.out.rglob('*')))} files in {options.out}")
    return 0


def commands(checkout: Checkout) -> Iterator[tuple[str, ...]]:
    """Every command line that needs no live host."""
    recordings = sorted(folder.name for folder in (checkout.root / "nodectl/data/recordings").iterdir())
    profiles = json.loads(checkout.nodectl("profile", "list", "--output", "json").stdout)["profiles"]
    names = {kind: [p["name"] for p in profiles if p["kind"] == kind] for kind in ("hardware", "stack", "tuning")}
    for recording in recordings:
        replay = ("--replay", recording)
        for output in _OUTPUTS:
            yield (*replay, "--output", output, "facts")
            yield (*replay, "--output", output, "topology")
            yield (*replay, "--output", output, "topology", "--propose-env")
            yield (*replay, "health", "--output", output)
        for words in (("--output", "junit"), ("--output", "prometheus"), ("--all",), ("--one-line",), ("--strict",)):
            yield (*replay, "health", *words)
        for tuning in names["tuning"]:
            yield (*replay, "health", "--tuning", tuning, "--output", "json")
        for stack in names["stack"]:
            yield (*replay, "health", "--stack", stack, "--output", "json")
        tools = set(re.findall(r"[a-z][\w-]+", checkout.nodectl("parse", "--help").stdout.partition("Tools:")[2]))
        for file in sorted((checkout.root / "nodectl/data/recordings" / recording / "node01").glob("*.out")):
            if file.stem in tools or file.stem.startswith("nvidia-smi"):
                yield ("parse", file.stem, str(file.relative_to(checkout.root)))
    for kind, known in names.items():
        for name in known:
            yield ("profile", "show", f"{kind}/{name}", "--output", "json")
            yield ("profile", "show", f"{kind}/{name}")
    for hardware in names["hardware"]:
        for stack in names["stack"]:
            yield ("profile", "validate", "--hardware", hardware, "--stack", stack, "--tuning", "stock")
        for tuning in names["tuning"]:
            yield ("profile", "validate", "--hardware", hardware, "--stack", "cu128", "--tuning", tuning)
    yield ("health", "--list")
    yield ("health", "--list", "--output", "json")
    yield ("profile", "list")
    yield from helps(checkout)


def helps(checkout: Checkout, *path: str, above: str = "") -> Iterator[tuple[str, ...]]:
    """Yield `--help` of a command and of all below it; a word that shows the help above it is no command."""
    text = checkout.nodectl(*path, "--help").stdout
    if text == above:
        return
    yield (*path, "--help")
    # of options, examples and sentences no line begins with a name between blanks
    for name in re.findall(r"^  ([a-z][\w-]*)  +\S", text, re.MULTILINE):
        yield from helps(checkout, *path, name, above=text)


def file_name(args: Sequence[str]) -> str:
    """Return a file's name out of a command line."""
    return re.sub(r"[^\w.,=-]+", "_", " ".join(args))[:200] + ".txt"


def output_of(checkout: Checkout, args: Sequence[str]) -> str:
    """Exit status, output and errors of a command, without what changes from run to run."""
    done = checkout.nodectl(*args)
    whole = f"exit {done.returncode}\n{done.stdout}\n--- stderr\n{done.stderr}"
    whole = whole.replace(str(checkout.root), "CHECKOUT")
    whole = re.sub(r'timestamp="[^"]*"', 'timestamp=""', whole)
    return re.sub(r"(?m)(timestamp_seconds) [\d.]+$", r"\1", whole)


def tunings_on_a_lab(checkout: Checkout, out: Path) -> None:
    """Run the plays on a fresh lab host for each tuning; keep what they wrote."""
    state = checkout.state / "lab"
    env = {"XDG_STATE_HOME": str(state), "XDG_CACHE_HOME": str(checkout.root / ".cache")}
    tunings = [path.stem for path in sorted((checkout.root / "nodectl/profiles/tuning").glob("*.yml"))]
    for tuning in tunings:
        name = f"snapshot-{os.getpid()}"
        inventory = checkout.nodectl("lab", "up", "-n", "1", "--name", name, env=env).stdout.strip()
        try:
            host = ("-i", inventory)
            checkout.nodectl(*host, "exec", "--", "sh", "-c", "touch /etc/nodectl-before; sleep 0.1", env=env)
            done = checkout.nodectl(*with_tuning(inventory, tuning, checkout.state), "provision", env=env)
            folder = out / tuning
            folder.mkdir(parents=True)
            (folder / "exit").write_text(f"{done.returncode}\n")
            listed = stdout_of(checkout.nodectl(*host, "--output", "json", "exec", "--", "sh", "-c", _WRITTEN, env=env))
            for path in sorted(set(listed.split()) - set(_PASSED_OVER)):
                text = stdout_of(checkout.nodectl(*host, "--output", "json", "exec", "--", "cat", path, env=env))
                kept = folder / path.lstrip("/")
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(text)
        finally:
            checkout.nodectl("lab", "down", "--name", name, env=env)


def with_tuning(inventory: str, tuning: str, folder: Path) -> tuple[str, ...]:
    """Return the options that name the inventory and a second one, which holds the tuning for all hosts."""
    more = folder / f"{tuning}.yml"
    more.write_text(f"all:\n  vars:\n    nodectl_tuning: {tuning}\n")
    return ("-i", inventory, "-i", str(more))


def stdout_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the output of the only host, from the JSON of `nodectl exec`."""
    return str(json.loads(done.stdout)["results"][0]["stdout"])


if __name__ == "__main__":
    raise SystemExit(main())
