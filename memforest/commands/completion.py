"""`completion`: the lines that make a shell complete commands, options and ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

# Where each shell looks by itself, or how it is told.
_INSTALLED = {
    "bash": "memforest completion bash > ~/.local/share/bash-completion/completions/memforest",
    "zsh": 'memforest completion zsh > "${fpath[1]}/_memforest"',
    "fish": "memforest completion fish > ~/.config/fish/completions/memforest.fish",
}


@click.command(
    epilog='It also works at once: eval "$(memforest completion bash)", for as long as the shell lives.'
)
@click.argument("shell", type=click.Choice(sorted(_INSTALLED)))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, options, and ids from the running daemon.

    The printed lines begin with a comment that says where to put them.
    """
    found = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert found is not None, "click knows all three shells"
    source = found(root, {}, "memforest", "_MEMFOREST_COMPLETE").source().strip()
    place = f"# To have it in every shell: {_INSTALLED[shell]}"
    # zsh looks for `#compdef` in the first line.
    first, _, rest = source.partition("\n")
    click.echo(f"{first}\n{place}\n{rest}" if first.startswith("#compdef") else f"{place}\n{source}")
