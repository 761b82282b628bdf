"""Every parser under a coverage-guided fuzzer: `python -m tests.system.fuzzing --runs 10000000`."""

import argparse
import base64
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fsl_async.errors import MisuseError

from .campaign import Engine, Failure, Plan, Tally, command_to_replay, shares
from .catalogue import PARSERS, parser_named
from .engine import available
from .parser import Parser, accepts

VERSION = 1
WIDTH = 140
CLEAN, FOUND, IMPOSSIBLE = 0, 1, 2


def main(arguments: list[str]) -> int:
    """Run the command; the exit code tells whether anything was found, or why nothing could be."""
    options = _read(arguments)
    console = Console(stderr=True, width=None if sys.stderr.isatty() else WIDTH)
    try:
        if options.replay:
            return _replay(*options.replay)
        parsers = [parser_named(name) for name in options.target if name != "all"] or list(PARSERS.values())
    except (MisuseError, OSError) as error:
        console.print(str(error), markup=False, soft_wrap=True)
        return IMPOSSIBLE
    if missing := available():
        console.print(missing, markup=False, soft_wrap=True)
        return IMPOSSIBLE
    return _fuzz_all(parsers, options, console)


def _read(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.system.fuzzing", description=__doc__.splitlines()[0])
    parser.add_argument("--target", action="append", default=[], metavar="NAME", help="a parser, or all of them")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--runs", type=_positive, default=0, help="executions in all, divided by how fast parsers are")
    extent.add_argument("--seconds", type=_positive, default=0, help="in all, divided evenly")
    parser.add_argument("--corpus", type=Path, help="a folder of inputs to begin with, which grows; else a new one")
    parser.add_argument("--artifacts", type=Path, default=Path("fuzzing-artifacts"), help="for inputs that fail")
    parser.add_argument("--timeout", type=_positive, default=10, help="seconds that one input may take")
    parser.add_argument("--seed", type=int, default=0, help="of the fuzzer's choices")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout at the end")
    parser.add_argument("--replay", nargs=2, metavar=("NAME", "FILE"), help="give a file to a parser and nothing else")
    parser.add_argument("--list", action="store_true", help="name all parsers")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(PARSERS))
        parser.exit()
    if not (options.runs or options.seconds or options.replay):
        options.runs = 1_000_000
    return options


def _positive(text: str) -> int:
    number = int(text.replace("_", "").replace(",", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"a positive number expected, not {text}")
    return number


def _replay(name: str, file: str) -> int:
    """Give an input to a parser once more; an error that it may not raise comes out with its traceback."""
    data = Path(file).read_bytes()
    read = accepts(parser_named(name), data)
    print(f"{name} {'reads' if read else 'refuses'} these {len(data)} bytes, as it may")
    return CLEAN


def _fuzz_all(parsers: list[Parser], options: argparse.Namespace, console: Console) -> int:
    share = shares(parsers, options.runs) if options.runs else {}
    tallies: list[Tally] = []
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="fsl-async-corpus-") as fresh,
        _progress(console) as progress,
        Engine() as engine,
    ):
        folder = (options.corpus or Path(fresh)).resolve()
        whole = progress.add_task("executions", total=sum(share.values()) or None)
        for parser in parsers:
            done = sum(tally.runs for tally in tallies)
            progress.update(whole, description=parser.name)
            plan = Plan(
                corpus=folder / parser.name,
                artifacts=options.artifacts.resolve(),
                runs=share.get(parser.name, 0),
                seconds=options.seconds / len(parsers) if options.seconds else 0.0,
                timeout=options.timeout,
                seed=options.seed,
            )
            tallies.append(
                engine.fuzz(parser, plan, lambda runs, done=done: progress.update(whole, completed=done + runs))
            )
            _tell(tallies[-1], progress.console)
    seconds = time.monotonic() - begun
    _tabulate(tallies, seconds, console)
    if options.json:
        print(json.dumps(figures(tallies, seconds)))
    return FOUND if any(tally.failures for tally in tallies) else CLEAN


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:26}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def _tell(tally: Tally, console: Console) -> None:
    line = f"{tally.name}: {tally.runs:,} executions, {tally.per_second:,.0f} per second, coverage {tally.coverage}"
    console.print(f"{line}, {tally.resident[0]} to {tally.resident[1]} MiB", highlight=False, soft_wrap=True)
    for failure in tally.failures:
        for line in (failure.output, *_described(tally.name, failure)):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _described(name: str, failure: Failure) -> tuple[str, ...]:
    data = failure.data
    return (
        f"{name} failed on {len(data)} bytes, kept in {failure.input}",
        f"hex: {data[:2_048].hex()}",
        f"base64: {base64.b64encode(data[:2_048]).decode()}",
        f"again: {command_to_replay(name, failure.input)}",
    )


def _tabulate(tallies: list[Tally], seconds: float, console: Console) -> None:
    table = Table("parser", "executions", "per second", "coverage", "features", "inputs kept", "MiB", "failures")
    for tally in tallies:
        numbers = (tally.runs, round(tally.per_second), tally.coverage, tally.features, tally.corpus)
        resident = f"{tally.resident[0]} to {tally.resident[1]}"
        table.add_row(tally.name, *(f"{number:,}" for number in numbers), resident, str(len(tally.failures)))
    runs = sum(tally.runs for tally in tallies)
    table.add_section()
    table.add_row("all", f"{runs:,}", f"{runs / seconds:,.0f}", "", "", "", "", str(_failures(tallies)))
    console.print(table)


def _failures(tallies: list[Tally]) -> int:
    return sum(len(tally.failures) for tally in tallies)


def figures(tallies: list[Tally], seconds: float) -> dict[str, Any]:
    """What is reported of all parsers."""
    return {
        "version": VERSION,
        "executions": sum(tally.runs for tally in tallies),
        "seconds": round(seconds, 1),
        "failures": _failures(tallies),
        "parsers": [
            {
                "name": tally.name,
                "executions": tally.runs,
                "seconds": round(tally.seconds, 1),
                "per_second": round(tally.per_second),
                "coverage": tally.coverage,
                "features": tally.features,
                "inputs_kept": tally.corpus,
                "resident_mib": list(tally.resident),
                "failures": [
                    {"file": str(failure.input), "base64": base64.b64encode(failure.data).decode()}
                    for failure in tally.failures
                ],
            }
            for tally in tallies
        ],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
