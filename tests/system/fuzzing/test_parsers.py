"""Every parser of the catalogue in the ordinary suite: it refuses as it may, ends, and takes memory as it may."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsl_async.errors import FslError, MisuseError
from tests.support.cases import in_turn

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


@pytest.mark.parametrize("part", [4, pytest.param(1, marks=pytest.mark.slow)])
@in_turn("name", NAMES)
def test_hostile_bytes_are_refused_as_they_may(part: int, name: str) -> None:
    parser = PARSERS[name]

    @settings(max_examples=EXAMPLES[parser.share < FAST] // part)
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
        tracemalloc.start()
        try:
            accepts(parser, data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
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


def test_parsers_raise_errors_of_ours_alone() -> None:
    assert all(issubclass(error, FslError) for parser in PARSERS.values() for error in parser.errors)


def test_an_unknown_parser_is_named_with_the_known_ones() -> None:
    with pytest.raises(MisuseError, match=r"no parser is called 'from-nobody'; there are .*preamble, "):
        parser_named("from-nobody")
