"""`nodectl completion`: Print the shell completion script."""

from __future__ import annotations

import click

from nodectl.cli.options import OneOf, text_option

_HELP = """Print the script with which SHELL completes commands, options and their choices.

\b
bash   nodectl completion bash > ~/.local/share/bash-completion/completions/nodectl
       or in ~/.bashrc: eval "$(nodectl completion bash)"
zsh    nodectl completion zsh > ~/.zfunc/_nodectl, and in ~/.zshrc:
       fpath=(~/.zfunc $fpath); autoload -Uz compinit; compinit
fish   nodectl completion fish > ~/.config/fish/completions/nodectl.fish

A shell that is started after that completes.  No host is asked, and no inventory is read.
"""


@click.command(help=_HELP)
@click.argument("shell", type=OneOf(["bash", "zsh", "fish"]))
@text_option
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print click's script for the shell."""
    from click.shell_completion import get_completion_class

    shell_class = get_completion_class(shell)
    root = ctx.find_root()
    if shell_class is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    click.echo(shell_class(root.command, {}, "nodectl", "_NODECTL_COMPLETE").source())
