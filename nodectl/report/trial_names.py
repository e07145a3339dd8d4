"""What a trial measured, in as few words as tell it from the rest: what all of a probe share is left to the JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nodectl.model.verdict import Verdict

_SHOWN_HOSTS = 4


@dataclass(frozen=True, slots=True)
class Names:
    """`shared` are, for each probe, the conditions that all its verdicts have."""

    shared: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Names:
        """From all verdicts of a trial."""
        shared: dict[str, frozenset[str]] = {}
        for each in verdicts:
            conditions = frozenset(_parts(each.subject)[1:])
            shared[each.probe] = shared.get(each.probe, conditions) & conditions
        return cls(shared)

    def short(self, probe: str, subject: str) -> str:
        """Where, and of the conditions those that differ; a collective or a kernel, which is a bare word, always."""
        where, *conditions = _parts(subject)
        common = self.shared.get(probe, frozenset())
        kept = [each for each in conditions if each not in common or " " not in each]
        return ", ".join([_few(where), *kept])


def _parts(subject: str) -> list[str]:
    return subject.split(", ")


def _few(where: str) -> str:
    count = where.count(",") + 1
    return f"{count} hosts" if count > _SHOWN_HOSTS else where
