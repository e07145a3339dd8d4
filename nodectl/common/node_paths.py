"""Paths on a node: what the roles install, and the folder of the login user that nodectl writes."""

ROOT = "/opt/nodectl"
VENV = f"{ROOT}/venv"
LAUNCHER = f"{ROOT}/bin/nodectl-launch"
NCCL_TESTS = f"{ROOT}/nccl-tests"
# of what is under way; plugins/module_utils/undo has the same, for the nodes
TRIALS = "/run/nodectl-trial"
# for a POSIX shell on the node; payload/jobs/folder.py computes the same. A start file may have taken HOME away
HOME_FOLDER = "${HOME:-$(getent passwd $(id -u) | cut -d: -f6)}"
STATE_FOLDER = f"${{XDG_STATE_HOME:-{HOME_FOLDER}/.local/state}}/nodectl"
# sets `home`; under sudo the login's own is meant, not root's
FIND_HOME = f"""\
home={HOME_FOLDER}
[ -z "$SUDO_USER" ] || home=$(getent passwd "$SUDO_USER" | cut -d: -f6)
"""
# sets `nccl_conf`, which NCCL reads before /etc/nccl.conf: NCCL_CONF_FILE of this session or of what logins read
FIND_NCCL_CONF = (
    FIND_HOME
    + """\
nccl_conf=$NCCL_CONF_FILE
[ -n "$nccl_conf" ] || nccl_conf=$(cat /etc/environment /etc/profile /etc/profile.d/*.sh "$home"/.profile \
  "$home"/.bash_profile "$home"/.bashrc 2>/dev/null |
  sed -n 's/^[[:blank:]]*\\(export[[:blank:]][[:blank:]]*\\)*NCCL_CONF_FILE=//p' | tail -n 1 |
  sed "s/[\\"']//g; s/[[:blank:];].*//; s|^~/|$home/|; s|^\\$HOME/|$home/|; s|^\\${HOME}/|$home/|")
"""
)
# what every host of a lab sees of the operator's machine, read-only: wheels and uv
LAB_SHARE = "/srv/nodectl"
# what every host of a lab can write: its storage on the network
LAB_SHARED = "/shared"
