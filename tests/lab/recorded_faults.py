"""The recorded faults of recorded_faults.yml: what a recorded host says with them, and hosts of a lab that say so."""

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from nodectl.errors import LabError
from nodectl.facts.catalogue import all_facts, commands_for
from nodectl.lab.dress import RECORDED
from nodectl.lab.faults import Scene
from nodectl.lab.state import LabFolder
from nodectl.model.host import Host

_CUT, _BYTES = "cut", "surrogateescape"
_LEVEL = re.compile(r"(?s)(<\d{1,3}>)?(.*)")
_GPU = re.compile(r"(?m)^GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.0$")
_STAMP = "[1295000.118204]"


class CannotEditError(Exception):
    """The recording has nothing of which this could go wrong."""


@dataclass(frozen=True)
class Output:
    """What a recorded command printed, and its exit status; None where it was cut."""

    stdout: str
    stderr: str = ""
    exit_status: int | None = 0


Outputs = Mapping[str, Output]


@dataclass(frozen=True)
class RecordedFault:
    """One row of the table: at least one of the checks has to find it; `takes_two`: the other host is named, too."""

    name: str
    about: str
    checks: tuple[str, ...]
    edits: tuple[Mapping[str, Any], ...]
    takes_two: bool = False
    load: bool = False
    way: str = "recorded"


def _table() -> dict[str, RecordedFault]:
    rows = yaml.load(Path(__file__).with_suffix(".yml").read_text("utf-8"), Loader=yaml.CSafeLoader)
    return {
        name: RecordedFault(
            name, row["about"], tuple(row["found_by"]), tuple(row["edits"]), takes_two=row.get("takes_two", False)
        )
        for name, row in rows.items()
    }


RECORDED_FAULTS = _table()


def spoiled(outputs: Outputs, kinds: Sequence[str], peer: Outputs | None = None) -> dict[str, Output]:
    """The outputs with these faults, one after the other; CannotEditError names the kind that has no place in them."""
    changed = dict(outputs)
    for kind in kinds:
        before = dict(changed)
        for edit in RECORDED_FAULTS[kind].edits:
            apply = next(_EDITS[key] for key in edit if key in _EDITS)
            try:
                changed |= apply(changed, edit, peer or {})
            except CannotEditError as error:
                raise CannotEditError(f"{kind}: {error}") from error
        if changed == before:
            raise CannotEditError(f"{kind}: the recording says so already")
    return changed


def _text(outputs: Outputs, key: str) -> str:
    if key not in outputs or not outputs[key].stdout.strip():
        raise CannotEditError(f"the recording has no {key}")
    return outputs[key].stdout


def _with_text(outputs: Outputs, key: str, text: str) -> dict[str, Output]:
    return {key: replace(outputs[key], stdout=text)}


def _substituted(outputs: Outputs, edit: Mapping[str, Any], _: Outputs) -> dict[str, Output]:
    key, count = edit["in"], 0 if edit.get("everywhere") else 1
    text, changes = re.subn(edit["pattern"], edit["becomes"], _text(outputs, key), count=count, flags=re.MULTILINE)
    if not changes:
        raise CannotEditError(f"{key} of this recording has no place for it")
    return _with_text(outputs, key, text)


def _logged(outputs: Outputs, edit: Mapping[str, Any], _: Outputs) -> dict[str, Output]:
    """A line that begins with `<` says itself by whom it is, and how grave."""
    bus = _bus(outputs, edit["gpu"]) if "gpu" in edit else ""
    level, line = _LEVEL.fullmatch(edit["log"].replace("{bus}", bus)).groups("<4>")  # type: ignore[union-attr]  # all of it is optional
    return _with_text(outputs, "dmesg", _text(outputs, "dmesg") + f"{level}{_STAMP} {line}\n" * edit.get("times", 1))


def _whole(outputs: Outputs, edit: Mapping[str, Any], _: Outputs) -> dict[str, Output]:
    if missing := [key for key in edit["of"] if key not in outputs]:
        raise CannotEditError(f"the recording has no {', '.join(missing)}")
    return dict.fromkeys(edit["of"], Output(edit.get("says", ""), "", edit["exit"]))


def _of_peer(outputs: Outputs, edit: Mapping[str, Any], peer: Outputs) -> dict[str, Output]:
    if missing := [key for key in edit["peer"] if key not in outputs or key not in peer]:
        raise CannotEditError(f"no other host here has {', '.join(missing)}")
    return {key: peer[key] for key in edit["peer"]}


def _fields(outputs: Outputs, edit: Mapping[str, Any], _: Outputs) -> dict[str, Output]:
    """Fields are named by `Group/Key` or `Key`."""
    parts = _parts(outputs)
    for number in range(len(parts) - 1) if edit["gpu"] == "all" else [edit["gpu"]]:
        for path, value in edit["fields"].items():
            parts[number + 1] = _with_field(_part(parts, number), path, value)
    return _with_text(outputs, "nvidia-smi-q", "".join(parts))


def _with_field(part: str, path: str, value: str) -> str:
    """Groups are found in their order, by the indent of their lines."""
    position, indent = 0, ""
    *groups, key = path.split("/")
    for pattern in (*(rf"{re.escape(group)} *$" for group in groups), rf"{re.escape(key)} *: "):
        match = re.compile(rf"^({indent} +){pattern}", re.MULTILINE).search(part, position)
        if match is None:
            raise CannotEditError(f"nvidia-smi -q of this recording has no {path}")
        position, indent = match.end(), match[1]
    return part[:position] + value + part[part.index("\n", position) :]


def _without_gpu(outputs: Outputs, edit: Mapping[str, Any], _: Outputs) -> dict[str, Output]:
    number = edit["without_gpu"]
    bus, parts = _bus(outputs, number), _parts(outputs)
    count = len(parts) - 1
    del parts[number + 1]
    parts[0] = parts[0].replace(f": {count}\n", f": {count - 1}\n")
    rows = _text(outputs, "nvidia-smi-query").splitlines(keepends=True)
    shown = {
        "nvidia-smi-q": "".join(parts),
        "nvidia-smi-query": "".join(r for r in rows if f"{bus}.0".upper() not in r),
    }
    if "complaint" not in edit:
        return {key: replace(outputs[key], stdout=text) for key, text in shown.items()}
    complaint = f"Unable to determine the device handle for GPU0000:{bus[5:].upper()}.0: Unknown Error\n"
    return {
        key: Output(complaint if edit["complaint"] == "alone" else text + complaint, "", 255)
        for key, text in shown.items()
    }


def _swapped(outputs: Outputs, edit: Mapping[str, Any], _: Outputs) -> dict[str, Output]:
    one, two = (f"0000{_bus(outputs, number).upper()}.0" for number in edit["swap_gpus"])
    changed: dict[str, Output] = {}
    for key in ("nvidia-smi-q", "nvidia-smi-query"):
        text = _text(outputs, key).replace(one, "\0").replace(two, one).replace("\0", two)
        changed |= _with_text(outputs, key, text)
    return changed


def _interface(outputs: Outputs, edit: Mapping[str, Any], _: Outputs) -> dict[str, Output]:
    rows, change = json.loads(_text(outputs, "ip-address")), edit["interface"]
    private = [row for row in rows if any(a.get("local", "").startswith("10.") for a in row.get("addr_info", []))]
    if not private:
        raise CannotEditError("ip-address of this recording has no private address")
    if change == "gone":
        rows.remove(private[-1])
    else:
        addresses = private[-1]["addr_info"]
        private[-1]["addr_info"] = [{**address, **change} for address in addresses if address["family"] == "inet"]
    return _with_text(outputs, "ip-address", f"{json.dumps(rows)}\n")


_EDITS: dict[str, Callable[[Outputs, Mapping[str, Any], Outputs], dict[str, Output]]] = {
    "in": _substituted,
    "log": _logged,
    "fields": _fields,
    "of": _whole,
    "without_gpu": _without_gpu,
    "swap_gpus": _swapped,
    "interface": _interface,
    "peer": _of_peer,
}


def _parts(outputs: Outputs) -> list[str]:
    """The head of `nvidia-smi -q`, then each GPU's part."""
    text = _text(outputs, "nvidia-smi-q")
    starts = [match.start() for match in _GPU.finditer(text)]
    return [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]


def _part(parts: Sequence[str], number: int) -> str:
    if number + 1 >= len(parts):
        raise CannotEditError(f"the recording has no GPU {number}")
    return parts[number + 1]


def _bus(outputs: Outputs, number: int) -> str:
    """A GPU's place as the kernel writes it: 0000:07:00."""
    return _part(_parts(outputs), number).split()[1][4:-2].lower()


def say_faults(inventory: str, host: str, kinds: Sequence[str]) -> None:
    """Let a host of the dressed lab with that inventory say what it said at first, with these faults."""
    folder = LabFolder(Path(inventory).parent)
    state = folder.running()
    scene = Scene(folder, state, state.host(host))
    recorded, pristine = scene.root / RECORDED, folder.store / host / "recorded-before"
    if not pristine.exists():
        shutil.copytree(recorded, pristine)
    before = _read_all(pristine)
    other = next(each for each in state.hosts if each.name != host and each.up)
    peer = _read_all(Scene(folder, state, other).root / RECORDED)
    try:
        after = spoiled(before, kinds, peer)
    except CannotEditError:
        # a fault of what the host answers itself: its answer of now, with the change
        live = _live(scene)
        after = {
            key: output
            for key, output in spoiled({**live, **before}, kinds, peer).items()
            if key in before or output != live.get(key)
        }
    for path in recorded.iterdir():
        path.unlink()
    for path in pristine.iterdir():
        shutil.copy2(path, recorded)
    for key, output in after.items():
        if before.get(key) != output:
            status = _CUT if output.exit_status is None else str(output.exit_status)
            for ending, text in (("status", f"{status}\n"), ("err", output.stderr), ("out", output.stdout)):
                (recorded / f"{key}.{ending}").write_bytes(text.encode(errors=_BYTES))


def _live(scene: Scene) -> dict[str, Output]:
    """What the host answers to commands that no recording answers for it."""
    answers = {}
    for command in commands_for(Host(scene.host.name, scene.host.name), all_facts()):
        if not command.hardware and not command.root:
            with suppress(LabError):
                answers[command.key] = Output(scene.run(["env", "HOME=/root", *command.argv]))
    return answers


def _read_all(folder: Path) -> dict[str, Output]:
    """All outputs of a dressed host's folder."""
    outputs = {}
    for path in folder.glob("*.out"):
        texts = {
            ending: file.read_bytes().decode(errors=_BYTES)
            for ending in ("out", "err", "status")
            if (file := path.with_suffix(f".{ending}")).exists()
        }
        status = texts.get("status", "0").strip()
        outputs[path.stem] = Output(texts["out"], texts.get("err", ""), None if status == _CUT else int(status))
    return outputs
