"""paramiko is imported without what only a reader of ssh_config needs; Fabric, which is one, has it all the same."""

import subprocess
import sys

LOOK = """
import sys
import nodectl.transport.ssh
print("invoke" in sys.modules)
import nodectl.transport.fabric_group
import invoke, paramiko.config
print(paramiko.config.invoke is invoke)
"""


def test_invoke_is_fabrics_alone() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
