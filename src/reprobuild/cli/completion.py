"""completion: the script that a shell reads to complete commands, options and installables."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  eval "$(reprobuild completion bash)"     in ~/.bashrc
    zsh:   eval "$(reprobuild completion zsh)"      in ~/.zshrc
    fish:  reprobuild completion fish | source      in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from reprobuild.cli.main import main

    found = get_completion_class(shell)
    assert found is not None
    # The base class's text: BashComplete.source() would start bash to ask for its version.
    script = found(main, {}, "reprobuild", "_REPROBUILD_COMPLETE")
    click.echo(script.source_template % script.source_vars())
