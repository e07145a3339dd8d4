"""The node's entry point for everything about jobs: `jobctl.py receive|start|list|logs|stop|…`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nodectl.payload.jobs.control import main
else:  # on a node this folder is sys.path[0], and there is no nodectl
    from jobs.control import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
