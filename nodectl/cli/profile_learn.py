"""`nodectl profile learn`: a hardware profile from hosts that are known to be good."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nodectl.cli.app import App
from nodectl.cli.terminal import emit_json, note, result
from nodectl.errors import ProfileError, UsageError

if TYPE_CHECKING:
    from nodectl.model.measurement import Measurement


@click.command()
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@click.option("--name", metavar="NAME", help="What it is called; else the output file's name.")
@click.option("--output-file", type=click.Path(dir_okay=False, path_type=Path), help="Instead of standard output.")
@click.option(
    "--measurements",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What `nodectl --output json probe` said on these hosts: its least values become floors; repeatable.",
)
@click.option("--compute-capability", metavar="X.Y", help="Of GPUs that nodectl does not know.")
@click.pass_obj
def learn(
    app: App,
    hosts: tuple[str, ...],
    name: str | None,
    output_file: Path | None,
    measurements: tuple[Path, ...],
    compute_capability: str | None,
) -> None:
    """Write a hardware profile from HOSTs that are known to be good; refused where they disagree.

    Each value says from which hosts, when and by which command it was learned.  Put the file into profiles/hardware/
    beside the inventory, and its name into nodectl_hardware.
    """
    from datetime import UTC, datetime

    from nodectl.common.nodeset import fold
    from nodectl.profiles.learn import learn as learned_from

    app.limit = ",".join(hosts)
    facts = _facts_of(app)
    learned = learned_from(
        facts,
        names=fold(list(facts)),
        day=datetime.now(UTC).strftime("%Y-%m-%d"),
        measurements=[measurement for path in measurements for measurement in _measured(path)],
        capability=compute_capability,
    )
    called = name or (output_file.stem if output_file else "learned")
    if app.json:
        emit_json("profile-learn", {"name": called, "profile": learned.document, "notes": list(learned.notes)})
    elif output_file is None:
        result(_yaml(learned.document))
    if output_file is not None:
        try:
            output_file.write_text(_yaml(learned.document), encoding="utf-8")
        except OSError as error:
            reason, remedy = error.strerror or error, "name a file in a folder that is there and may be written to"
            raise UsageError(f"--output-file {output_file}: {reason}", remedy) from error
        note(f"wrote {output_file}; as profiles/hardware/{called}.yml beside the inventory it is hardware {called!r}")
    for text in learned.notes:
        note(f"warning: {text}")


def _facts_of(app: App) -> dict[str, dict[str, object]]:
    """All facts of the hosts; UnreachableError where one did not answer."""
    from nodectl.errors import UnreachableError
    from nodectl.facts.catalogue import commands_for, facts_for, read_facts
    from nodectl.model.recording import Recording

    facts = facts_for(root=False)
    source = app.source
    answers = {host.name: answer for host, answer in source.recordings(lambda host: commands_for(host, facts))}
    told: dict[str, dict[str, object]] = {}
    for host in source.hosts:
        answer = answers[host.name]
        if not isinstance(answer, Recording):
            raise UnreachableError(
                f"{host.name}: {answer.error or answer.outcome}", f"nodectl exec -l {host.name} -- true"
            )
        told[host.name] = read_facts(answer, facts)
    return told


def _measured(path: Path) -> list[Measurement]:
    """Those of which more is better: a latency has a ceiling and no floor, and a count of errors has neither."""
    import json

    from nodectl.model.measurement import Measurement
    from nodectl.probes.registry import kind_of

    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["measurements"]
        return [
            Measurement(
                probe=str(row["probe"]),
                hosts=tuple(map(str, row["hosts"])),
                value=float(row["value"]),
                unit=str(row["unit"]),
                conditions=kind_of(str(row["probe"])).chosen(dict(row.get("conditions") or {})),
            )
            for row in rows
            if kind_of(str(row["probe"])).lower_is_better(str(row["unit"])) is False
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProfileError(f"{path}: {error!r}", "give what `nodectl --output json probe …` printed") from error


def _yaml(document: dict[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
