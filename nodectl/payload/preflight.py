"""The node's entry point for preflight: `look REQUEST` answers facts as one JSON object, `listen` and `connect` try the
way between two hosts (a JSON request on standard input)."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Dict, List

if TYPE_CHECKING:
    from nodectl.payload.look import network, programs, reach, storage
else:  # on a node this folder is sys.path[0], and there is no nodectl
    from look import network, programs, reach, storage


def main(words: List[str]) -> None:
    """Do what the first word says; the answer is JSON lines."""
    mode = words[0]
    if mode == "look":
        request: Dict[str, Any] = json.loads(words[1])
        say({**network.look(request), **programs.look(request), **storage.look(request)})
    elif mode == "listen":
        reach.listen(json.load(sys.stdin))
    else:
        say(reach.connect(json.load(sys.stdin)))


def say(line: Dict[str, Any]) -> None:
    """One line, at once."""
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
