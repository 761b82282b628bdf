"""Every parser of the catalogue in the ordinary suite: it refuses as it may, ends, and takes memory as it may."""

import ast
import random
import sys
import threading
from functools import partial
from pathlib import Path
from types import CodeType, FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsl_async.errors import FslError, MisuseError
from tests import ROOT
from tests.house import PACKAGES, WINGS, python_files
from tests.support.cases import in_turn, peak_of

from .catalogue import PARSERS, PLANTED, parser_named
from .mutations import extremes, hostile, nests
from .parser import FAST, HEAVY, Parser, accepts

NAMES = sorted(PARSERS)
EXAMPLES = {True: 15, False: 40}
"""How many are drawn for a parser, by whether it is slow; every run of the tests draws a quarter of them."""


@in_turn("name", NAMES)
def test_valid_examples_are_read(name: str) -> None:
    assert PARSERS[name].samples
    for sample in PARSERS[name].samples:
        assert accepts(PARSERS[name], sample)
        assert len(sample) <= PARSERS[name].longest


@pytest.mark.parametrize("part", [16, pytest.param(1, marks=pytest.mark.slow)])
@in_turn("name", NAMES)
def test_hostile_bytes_are_refused_as_they_may(part: int, name: str) -> None:
    parser = PARSERS[name]

    @settings(max_examples=max(1, EXAMPLES[parser.share < FAST] // part))
    @given(st.data())
    def read_one(data: st.DataObject) -> None:
        accepts(parser, data.draw(hostile(parser)))

    read_one()


@in_turn("name", [name for name in NAMES if PARSERS[name].share > HEAVY])
def test_every_prefix_of_a_valid_example_is_refused_or_read(name: str) -> None:
    parser = PARSERS[name]
    for sample in parser.samples[:3]:
        for length in random.Random(name).sample(range(len(sample)), min(len(sample), 40)):
            accepts(parser, sample[:length])


@in_turn("name", NAMES)
def test_nests_are_refused_as_they_may(name: str) -> None:
    for nest in nests():
        accepts(PARSERS[name], nest)


@in_turn("name", NAMES)
def test_memory_follows_the_input_and_not_what_it_declares(name: str) -> None:
    parser = PARSERS[name]
    rng = random.Random(f"memory of {name}")
    for data in (*parser.samples[:2], *(extremes(parser, rng) for _ in range(8))):
        accepts(parser, data)  # once beforehand: imports, caches, compiled patterns
        peak = peak_of(partial(accepts, parser, data))
        assert peak <= parser.allowed(len(data)), f"{peak:,} bytes for {len(data):,}: {data[:200].hex()}"


# ---- the catalogue's own tests


def test_an_error_that_does_not_name_its_source_is_found() -> None:
    parser = Parser("nameless", _refuse, list, (MisuseError,), source="alice")
    with pytest.raises(AssertionError, match="alice"):
        accepts(parser, b"")


def _refuse(data: bytes) -> None:
    raise MisuseError("something is wrong")


def test_what_a_parser_may_not_raise_comes_out() -> None:
    with pytest.raises(KeyError):
        accepts(PLANTED["planted-crash"], b"FSL")


# ---- that nothing is left out

DECODERS = (".unpackb", ".Unpacker", ".convert", ".fromhex", ".unpack_from", ".loads")
DECODERS += tuple(f"{module}.decode" for module in ("msgpack", "json", "decoder"))
NOT_FOREIGN = {
    ("parties/cluster/dask_apart.py", "_first_word"): "what a server says to the process that it has begun",
    ("parties/commands/preflight/host.py", "kernel_clock"): "the kernel's",
    ("transport/unix.py", "_origin"): "the kernel's",
}
WITHOUT_PARSERS = tuple(wing for wing in WINGS if not wing.startswith("parties/cluster"))


def test_every_function_that_reads_foreign_bytes_is_reached_by_some_parser() -> None:
    """What decodes, and in the core what names the peer whose bytes are wrong: a new one needs a parser here."""
    reached = {(Path(code.co_filename), code.co_name) for code in _run_by_examples()}
    readers = {
        (path, function.name)
        for package in PACKAGES
        for path in python_files(ROOT / package)
        if not (place := path.relative_to(ROOT).as_posix()).startswith(WITHOUT_PARSERS)
        for function in _functions(path)
        if (_decodes(function) or (package == "fsl_async" and _refuses_bytes(function)))
        and (place, function.name) not in NOT_FOREIGN
    }
    assert len(readers) > 20
    assert not readers - reached


def _run_by_examples() -> set[CodeType]:
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        codes.add(frame.f_code)

    examples = [(parser, sample) for parser in PARSERS.values() for sample in parser.samples]
    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        for parser, sample in examples:
            accepts(parser, sample)
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type] - as Python says how it is undone
    return codes


def _functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _decodes(function: ast.AST) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(ast.unparse(call.func).endswith(DECODERS) for call in calls)


def _refuses_bytes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    given = " ".join(ast.unparse(argument.annotation) for argument in function.args.args if argument.annotation)
    raised = (ast.unparse(node) for node in ast.walk(function) if isinstance(node, ast.Raise))
    return bool({"Buffer", "bytes", "memoryview"} & set(given.split())) and any("PeerViolation" in it for it in raised)


def test_parsers_raise_errors_of_ours_alone() -> None:
    assert all(issubclass(error, FslError) for parser in PARSERS.values() for error in parser.errors)


def test_an_unknown_parser_is_named_with_the_known_ones() -> None:
    with pytest.raises(MisuseError, match=r"no parser is called 'from-nobody'; there are .*preamble, "):
        parser_named("from-nobody")
