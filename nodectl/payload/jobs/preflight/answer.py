"""Preflight on a node: `look REQUEST` answers facts as one JSON object, `listen` and `connect` try the way to a host.

Those two take a JSON request on standard input.
"""

from __future__ import annotations

import json
import sys
from typing import List

from ...common.events import say


def main(words: List[str]) -> int:
    """Do what the first word says; the answer is frames."""
    mode = words[0]
    # each imports what the others need not wait for
    if mode == "look":
        from . import network, programs, storage

        request = json.loads(words[1])
        say(**network.look(request), **programs.look(request), **storage.look(request))
        return 0
    from . import reach

    if mode == "listen":
        reach.listen(json.load(sys.stdin))
    else:
        say(**reach.connect(json.load(sys.stdin)))
    return 0
