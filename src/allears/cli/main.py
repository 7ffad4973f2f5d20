"""``allears``: the list of commands, and how errors reach a person."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from typing import TYPE_CHECKING

import typer

from allears import __version__
from allears.cli.average import average
from allears.cli.bench import train as bench_train
from allears.cli.demo import demo
from allears.cli.evaluate import evaluate
from allears.cli.inspect import batch, ledger, quarantine, run, utterance
from allears.cli.launch import launch
from allears.cli.parity import parity
from allears.cli.prepare import prepare
from allears.cli.synthesize import synthesize
from allears.cli.tokenizer import tokenizer
from allears.cli.train import train
from allears.cli.transcribe import transcribe
from allears.cli.validate import validate
from allears.errors import AllearsError, too_many_files
from allears.processes import DEBUG

if TYPE_CHECKING:
    from collections.abc import Callable

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells use it: 128 and the signal's number."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Trains speech recognisers on any number of devices, with one command and one result.",
    epilog="Every command takes --debug: an error then shows its traceback.",
)


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """``command``, ending with `INTERRUPTED` after Ctrl-C (typer itself would end with 1)."""

    @functools.wraps(command)
    def interruptible(*arguments: object, **options: object) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)

    return interruptible


for _command in (demo, synthesize, prepare, validate, tokenizer, train, launch, evaluate, transcribe, average, parity):
    # What follows the command that launch starts is that command's own.
    _own = {"allow_interspersed_args": _command is not launch}
    app.command(context_settings=_own)(_interruptible(_command))

_inspect = typer.Typer(no_args_is_help=True, help="Pictures of an utterance, of a step, of runs; the records of a run.")
for _view in (utterance, batch, run, ledger, quarantine):
    _inspect.command()(_interruptible(_view))
app.add_typer(_inspect, name="inspect")

_bench = typer.Typer(no_args_is_help=True, help="What a training costs on this machine, and where its time goes.")
_bench.callback()(lambda: None)  # a group, also as long as it has one command
_bench.command("train")(_interruptible(bench_train))
app.add_typer(_bench, name="bench")


@app.callback(invoke_without_command=True)
def _version(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; exit with 0 only on success."""
    # Threads that wait by spinning take a busy machine's cores from each other: measured, a step eight times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    if debug:
        os.environ[DEBUG] = "1"
    arguments = [argument for argument in arguments if argument != "--debug"]
    code: int | str | None = 0
    try:
        app(arguments)  # says itself what is wrong with an option, and always ends in SystemExit
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except AllearsError as error:
        if debug:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        code = 1
    except Exception as error:  # noqa: BLE001 (the last line before the person: nobody sees a bare traceback)
        if debug:
            traceback.print_exc()
        unexpected = f"unexpected {type(error).__name__}: {error}; run again with --debug to see where."
        print(f"error: {too_many_files(error) or unexpected}", file=sys.stderr)
        code = 1
    if code == INTERRUPTED:
        print("stopped; the same command goes on from what is complete.", file=sys.stderr)
    sys.exit(code)
