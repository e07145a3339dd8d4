"""Where things lie on a node: what the roles install, and the folder of the login user that nodectl writes."""

ROOT = "/opt/nodectl"
VENV = f"{ROOT}/venv"
LAUNCHER = f"{ROOT}/bin/nodectl-launch"
NCCL_TESTS = f"{ROOT}/nccl-tests"
# of what is under way; plugins/module_utils/undo has the same, for the nodes
TRIALS = "/var/lib/nodectl/trials"
# for a POSIX shell on the node; payload/jobs/folder.py computes the same
STATE_FOLDER = "${XDG_STATE_HOME:-$HOME/.local/state}/nodectl"
# what every host of a lab sees of the operator's machine, read-only: wheels and uv
LAB_SHARE = "/srv/nodectl"
