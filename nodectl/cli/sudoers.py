"""`nodectl sudoers`: Print what an unprivileged login needs of sudo."""

from __future__ import annotations

import click

from nodectl.cli.options import OneOf, text_option
from nodectl.cli.terminal import result
from nodectl.common.process import login
from nodectl.provision.sudoers import sudoers as drop_in


@click.command()
@click.option("--user", metavar="NAME", help="The login on the nodes, or %GROUP.  Default: your own login's name.")
@click.option(
    "--provision",
    type=OneOf(["none", "password", "nopasswd"]),
    default="none",
    show_default=True,
    help="Also allow provisioning, which is root with all rights.",
)
@text_option
def sudoers(user: str | None, provision: str) -> None:
    """Print a drop-in for /etc/sudoers.d: exactly the commands that nodectl runs by `sudo -n` on a node."""
    result(drop_in(user or login(), provision).rstrip("\n"))
