"""The program ``conenmf``: all its commands, and ``completion``.

Answers go to standard output, progress and errors to standard error.
"""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import get_completion_class

from .. import __version__
from .failures import EXIT_CODES
from .fitting import demo, example, fit
from .judging import compare, diagnose, rank
from .saved_results import report, transform

__all__ = ["app"]


class _Group(click.Group):
    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        resolved = super().resolve_command(ctx, args)
        ctx.obj["command"] = resolved[1]  # for the words of an error
        return resolved

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="conenmf")
def app() -> None:
    """Nonnegative matrix factorization that knows how good its answer is.

    DATA is a file: .csv, .tsv, .txt, .npy, .npz, .parquet, .pq, .arrow, .feather, .ipc, .mtx, .mat,
    .h5, .hdf5 (file.h5:/dataset), .h5ad (file.h5ad:layers/counts), .zarr, a scene of ENVI (.hdr
    with .img, .bsq, .bil or .bip) or of several pages (.tif, .tiff), or a folder of images, of
    texts (.txt) or of 10x Genomics (matrix.mtx). Text and .mtx may be compressed (.gz).

    \b
    conenmf demo                          an example, on data that are included
    conenmf example                       a small table to try, counts.csv
    conenmf fit counts.csv -o result      factorise, judge, and write a report
    conenmf COMMAND --help                the options of a command, with examples
    """


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script with which SHELL completes commands and options.

    \b
    eval "$(conenmf completion bash)"                                  in ~/.bashrc
    eval "$(conenmf completion zsh)"                                   in ~/.zshrc
    conenmf completion fish > ~/.config/fish/completions/conenmf.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(app, {}, "conenmf", "_CONENMF_COMPLETE").source())


for _command in (fit, rank, diagnose, compare, transform, report, demo, example, completion):
    app.add_command(_command)
