"""README.md of each role, from its meta/argument_specs.yml and defaults/main.yml: each fact stands there once.

usage: scripts/role_readmes.py [--check] [ROLE ...]      --check writes nothing, and exits with 1 if one is stale
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parent.parent / "roles"
_CLOSING = (
    "`tasks/validate.yml` refuses what cannot be, `tasks/verify.yml` judges the live host as `nodectl health` does; "
    "`playbooks/` run them apart."
)


def main() -> None:
    """Write the READMEs that are stale, or with --check name them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("roles", nargs="*", metavar="ROLE")
    options = parser.parse_args()
    known = sorted(path.parent.parent.name for path in ROLES.glob("*/meta/argument_specs.yml"))
    if unknown := sorted(set(options.roles) - set(known)):
        parser.error(f"no role with argument_specs named {', '.join(unknown)}; there are: {', '.join(known)}")
    stale = [role for role in options.roles or known if not is_current(ROLES / role)]
    for role in stale:
        if not options.check:
            (ROLES / role / "README.md").write_text(readme(ROLES / role), encoding="utf-8")
        print(f"roles/{role}/README.md: {'not what its argument_specs say' if options.check else 'written'}")
    if stale and options.check:
        print("run scripts/role_readmes.py")
        sys.exit(1)


def is_current(role: Path) -> bool:
    """Return whether the README is what the specs say."""
    path = role / "README.md"
    return path.is_file() and path.read_text(encoding="utf-8") == readme(role)


def readme(role: Path) -> str:
    """Return a role's README as its specs and defaults make it."""
    entries = _load(role / "meta" / "argument_specs.yml").get("argument_specs") or {}
    spec, defaults = entries.get("main") or {}, _load(role / "defaults" / "main.yml")
    if "short_description" not in spec:
        sys.exit(f"roles/{role.name}/meta/argument_specs.yml: argument_specs.main.short_description is missing")
    options: dict[str, Any] = {}
    for entry in entries.values():
        options = {
            **options,
            **{name: option for name, option in entry.get("options", {}).items() if name not in options},
        }
    paragraphs = [f"# {role.name}", _sentence(spec["short_description"])]
    paragraphs += [_sentence(text) for text in _texts(spec.get("description", []))]
    if options:
        rows = [row for name, option in options.items() for row in _rows(name, option, defaults)]
        paragraphs.append("\n".join(["| variable | type | default | meaning |", "|---|---|---|---|", *rows]))
    if example := spec.get("examples"):
        paragraphs.append(f"```yaml\n{example.rstrip()}\n```")
    if all((role / "tasks" / f"{name}.yml").is_file() for name in ("validate", "verify")):
        paragraphs.append(_CLOSING)
    return "\n\n".join(paragraphs) + "\n"


def _rows(name: str, option: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[str]:
    """Yield the variable, then the keys of its mapping, or of each element of its list (`pins[].name`)."""
    yield _row(name, option, defaults)
    place = f"{name}[]" if option.get("type") == "list" else name
    for key, inner in option.get("options", {}).items():
        yield from _rows(f"{place}.{key}", inner, {})


def _row(name: str, option: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    missing = "required" if option.get("required") else "not set"
    default = f"`{_plain(defaults[name])}`" if name in defaults else missing
    meaning = " ".join(_sentence(text) for text in _texts(option.get("description", [])))
    if choices := option.get("choices"):
        meaning += f" One of {', '.join(f'`{_plain(choice)}`' for choice in choices)}."
    kind = f"list of {option['elements']}" if "elements" in option else option.get("type", "str")
    cells = [f"`{name}`", kind, default, meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _plain(value: Any) -> str:
    """Return a value as the operator would write it in YAML, on one line."""
    return (
        " ".join(value.split()) if isinstance(value, str) and value.strip() else json.dumps(value, ensure_ascii=False)
    )


def _texts(description: str | list[str]) -> list[str]:
    return [description] if isinstance(description, str) else list(description)


def _sentence(text: str) -> str:
    text = " ".join(str(text).split())
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def _load(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.is_file() else {}


if __name__ == "__main__":
    main()
