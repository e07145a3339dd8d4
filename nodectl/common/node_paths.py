"""Where things lie on a node: what the roles install, and the folder of the login user that nodectl writes."""

ROOT = "/opt/nodectl"
VENV = f"{ROOT}/venv"
LAUNCHER = f"{ROOT}/bin/nodectl-launch"
NCCL_TESTS = f"{ROOT}/nccl-tests"
# of what is under way; plugins/module_utils/undo has the same, for the nodes
TRIALS = "/var/lib/nodectl/trials"
# for a POSIX shell on the node; payload/jobs/folder.py computes the same. A start file may have taken HOME away
HOME_FOLDER = "${HOME:-$(getent passwd $(id -u) | cut -d: -f6)}"
STATE_FOLDER = f"${{XDG_STATE_HOME:-{HOME_FOLDER}/.local/state}}/nodectl"
# sets `home`; under sudo the login's own is meant, not root's
FIND_HOME = f"""\
home={HOME_FOLDER}
[ -z "$SUDO_USER" ] || home=$(getent passwd "$SUDO_USER" | cut -d: -f6)
"""
# what every host of a lab sees of the operator's machine, read-only: wheels and uv
LAB_SHARE = "/srv/nodectl"
