"""The node's entry point for preflight: `preflight.py look|listen|connect`, a JSON request on standard input.

`look` says the time first and again at the end, each line as soon as it is known: the controller compares clocks by it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, Dict

if TYPE_CHECKING:
    from nodectl.payload.look import network, programs, reach, storage
else:  # on a node this folder is sys.path[0], and there is no nodectl
    from look import network, programs, reach, storage


def main(mode: str) -> None:
    """Do what `mode` says; the answer is JSON lines."""
    if mode == "look":
        say({"clock": time.time()})
    request: Dict[str, Any] = json.load(sys.stdin)
    if mode == "listen":
        reach.listen(request)
    elif mode == "connect":
        say(reach.connect(request))
    else:
        node = {**network.look(request), **programs.look(request), **storage.look(request)}
        say({"clock": time.time()})
        say({"node": node})


def say(line: Dict[str, Any]) -> None:
    """One line, at once."""
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
