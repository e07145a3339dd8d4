"""Facts as a table, a line for each subject and the hosts that agree on it, and as JSON."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass

from nodectl.common.nodeset import fold
from nodectl.model.facts import Unread
from nodectl.report.table import aligned

Words = Callable[[str, object], str]


def as_document(value: object) -> object:
    """Return a subject for JSON; one without values says `absent` or `unknown` with the reason."""
    if isinstance(value, Unread):
        return {value.kind: value.reason}
    if isinstance(value, dict):
        return {name: as_document(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [as_document(item) for item in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def facts_table(facts: Mapping[str, Mapping[str, object]], words: Words) -> str:
    """`subject  hosts  what they are`, subjects in the order of the first host, largest group of hosts first.

    Hosts whose subject has the same words share a line; an empty one has none.
    """
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for host, subjects in facts.items():
        for subject, value in subjects.items():
            groups[subject][words(subject, value)].append(host)
    rows = [
        (subject, fold(hosts), text)
        for subject, texts in groups.items()
        for text, hosts in sorted(texts.items(), key=lambda item: -len(item[1]))
        if text
    ]
    return aligned([("SUBJECT", "HOSTS", ""), *rows])
