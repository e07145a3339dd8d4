"""Lines of torch that look like errors of a job and are none: they are not shown while it is followed."""

from __future__ import annotations

import re

# gloo and the store ask DNS for the name of who connects; a cluster's own network has none (EAI_AGAIN, EAI_NONAME)
_NO_NAME = re.compile(r"socket\.cpp:\d+\] \[c10d\] The hostname of the client socket cannot be retrieved\. err=-[23]\b")
# torchrun on a host whose ranks have all succeeded waits for the others, and the first host's store may go before that
_BARRIER = re.compile(r"([A-Z]\d{4} [\d:.]+ +\d+ [^\]]+\]) Error waiting on exit barrier\b")


class Noise:
    """Tells them line by line; a record of torchrun's log is several lines, each with the same beginning."""

    def __init__(self) -> None:
        self._records: dict[str, str] = {}

    def holds(self, source: str, text: str) -> bool:
        """Return whether this line of `source` (a host, or a rank of it) is one of them."""
        if found := _BARRIER.match(text):
            self._records[source] = found[1]
        begun = self._records.get(source)
        if begun is not None and text.startswith(begun):
            return True
        self._records.pop(source, None)
        return _NO_NAME.search(text) is not None
