"""The program ``conenmf``: all its commands, and ``completion``.

Answers go to standard output, progress and errors to standard error.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from .. import __version__
from .failures import EXIT_CODES

__all__ = ["app"]

_HOMES = {
    "fit": "fitting",
    "rank": "judging",
    "stability": "replicating",
    "cells": "cell_programs",
    "diagnose": "judging",
    "compare": "judging",
    "transform": "saved_results",
    "report": "saved_results",
    "demo": "fitting",
    "example": "fitting",
}
_SHORT_HELP = {
    "fit": "Factorise DATA; write the factors, labels, history and a report to a folder.",
    "rank": "Estimate how many components DATA has: a table of estimators, and a recommendation.",
    "stability": "Fit DATA many times; say which components are found again, and how exactly.",
    "cells": "Find the gene programs of cells from raw counts DATA; write them as cNMF does.",
    "diagnose": "Report whether DATA lie in cones, how good a fit is, and which init suits them.",
    "compare": "Compare inits and solvers on DATA: error, time, and clustering scores.",
    "transform": "Compute the coefficients of new samples DATA in the components of MODEL.",
    "report": "Write the report of RESULT, a folder that fit wrote or the result.npz in it.",
    "demo": "Factorise handwritten digits: write digits.csv, the results and a report.",
    "example": "Write a small table to try: what 300 customers of a shop bought; by default "
    "counts.csv.",
    "completion": "Print the script with which SHELL completes commands and options.",
}


class _Commands(dict[str, click.Command]):
    """The commands by name; a module is imported when one of its commands is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        if not dict.__contains__(self, name) and name in _HOMES:
            self[name] = getattr(import_module(f".{_HOMES[name]}", __package__), name)
        return dict.__getitem__(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - this is `get`

    def __contains__(self, name: object) -> bool:
        return name in _HOMES or dict.__contains__(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter([*_HOMES, *(name for name in dict.keys(self) if name not in _HOMES)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def keys(self) -> Any:
        return list(self)

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


class _Group(click.Group):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _SHORT_HELP[name]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands without importing them, and options."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=_SHORT_HELP[name]) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)

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


app.commands = _Commands()
app.add_command(completion)
