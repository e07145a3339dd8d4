"""Knows which facts there are: those that stand in the modules of this folder; reads a host's from its recording."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import nodectl.facts
from nodectl.facts.base import Fact, Occasion, read_fact
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording

_ANY = Host("", "")
_DECLARED = re.compile(r"\b(?:Fact|text_fact)\(\s*[\"']([a-z][a-z0-9_]*)[\"']")


@cache
def modules() -> Mapping[str, str]:
    """Return the module of each subject: the files of this folder are searched for their facts, and not imported."""
    paths = sorted(path for folder in map(Path, nodectl.facts.__path__) for path in folder.glob("*.py"))
    return {
        subject: f"nodectl.facts.{path.stem}"
        for path in paths
        for subject in _DECLARED.findall(path.read_text(encoding="utf-8"))
    }


@cache
def registered() -> tuple[Fact[Any], ...]:
    """Return every fact of this folder, in the order of their lines."""
    return facts_named(*modules())


@cache
def all_facts() -> tuple[Fact[Any], ...]:
    """Return those that are collected always: what `nodectl facts` shows and `nodectl record` keeps."""
    return tuple(fact for fact in registered() if fact.occasion == "always")


def facts_named(*subjects: str) -> tuple[Fact[Any], ...]:
    """Return these, in the order of their lines; no other module is imported for it."""
    facts = (
        {value.subject: value for value in vars(import_module(modules()[subject])).values() if isinstance(value, Fact)}[
            subject
        ]
        for subject in subjects
    )
    return tuple(sorted(facts, key=lambda fact: (fact.row, fact.subject)))


def facts_for(
    sysctl_keys: Sequence[str] = (), *, root: bool = True, occasions: Sequence[Occasion] = ("always",)
) -> tuple[Fact[Any], ...]:
    """Return the facts of these occasions, kernel settings with `sysctl_keys`; without `root` those without sudo."""
    from nodectl.facts.settings import sysctl_fact

    return tuple(
        sysctl_fact(sysctl_keys) if fact.subject == "sysctl" and sysctl_keys else fact
        for fact in registered()
        if fact.occasion in occasions
        if root or not any(command.root or command.sudo for command in fact.commands_on(_ANY))
    )


def commands_for(host: Host, facts: Sequence[Fact[Any]] | None = None) -> tuple[Command, ...]:
    """All commands of the facts (of all facts where None), each key once."""
    chosen = all_facts() if facts is None else facts
    return tuple({command.key: command for fact in chosen for command in fact.commands_on(host)}.values())


def root_commands() -> tuple[Command, ...]:
    """Return what the collector runs as root, sorted by argv."""
    return tuple(sorted((command for command in commands_for(_ANY) if command.root), key=lambda command: command.argv))


def root_argvs() -> tuple[tuple[str, ...], ...]:
    """All that runs as root, by the collector or by a script of its own, sorted."""
    by_scripts = (argv for command in commands_for(_ANY) for argv in command.sudo)
    return tuple(sorted({*(command.argv for command in root_commands()), *by_scripts}))


def words_of(subject: str, value: object) -> str:
    """Return the line of `nodectl facts` for the subject's value; empty if there is none."""
    (fact,) = facts_named(subject)
    return fact.line(value)


def read_facts(recording: Recording, facts: Sequence[Fact[Any]] | None = None) -> dict[str, object]:
    """Return the value (or Unread) of each subject, of all facts where None."""
    return {fact.subject: read_fact(fact, recording) for fact in (all_facts() if facts is None else facts)}
