"""Bytes that are nearly right: valid examples with a few things wrong, and junk that is well-formed.

Hypothesis strategies; what they draw is shrunk when a test fails.
"""

from random import Random

import msgpack
from hypothesis import strategies as st

from .parser import Parser

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
_CUTS = st.integers(0, 2**16)


def hostile(parser: Parser) -> st.SearchStrategy[bytes]:
    """Bytes for a parser to read: random, nearly valid, or well-formed junk."""
    return st.one_of(st.binary(max_size=200), mutated(parser), junk())


def mutated(parser: Parser) -> st.SearchStrategy[bytes]:
    """A valid example after a few mutations."""
    changes = st.lists(st.one_of(*(make(parser) for make in _MUTATIONS)), min_size=1, max_size=4)
    return st.builds(_changed, st.sampled_from(parser.samples), changes)


def junk() -> st.SearchStrategy[bytes]:
    """Well-formed MessagePack of no meaning, and headers that declare more than follows."""
    leaves = st.one_of(
        st.none(), st.booleans(), st.sampled_from([n for n in _NUMBERS if n < 2**64]), st.floats(), st.text(max_size=8)
    ) | st.binary(max_size=8)
    values = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    )
    deep = st.builds(lambda header, depth: header * depth, st.sampled_from(_DEEP), st.integers(1, 1_200))
    return st.one_of(values.map(msgpack.packb), deep)


def nests() -> list[bytes]:
    """Lists in lists and maps in maps, deeper than any reader follows, also where a reader would only skip them."""
    deep = [header * NEST for header in _DEEP] + [b"[" * NEST + b"]" * NEST]
    return [before + nest for nest in deep for before in (b"", b"\x81\xa7unknown", b'{"unknown":')]


NEST = 1_200
_DEEP = (b"\x91", b"\x81\xa1a", b"\xdc\x00\x40", b"\xdd\x00\x01\x86\xa0", b"\xdf\x00\x00\x00\x20", b"[", b'{"a":')


def _changed(data: bytes, changes: list) -> bytes:
    for change in changes:
        data = change(data)
    return data


def _flip(parser: Parser) -> st.SearchStrategy:
    """Flip one bit."""

    def change(place: int, bit: int):
        def flip(data: bytes) -> bytes:
            at = place % max(len(data), 1)
            return data[:at] + bytes(byte ^ 1 << bit for byte in data[at : at + 1]) + data[at + 1 :]

        return flip

    return st.builds(change, _CUTS, st.integers(0, 7))


def _cut(parser: Parser) -> st.SearchStrategy:
    """Leave out what lies between two places."""

    def change(first: int, second: int):
        def cut(data: bytes) -> bytes:
            start, stop = sorted(place % (len(data) + 1) for place in (first, second))
            return data[:start] + data[stop:]

        return cut

    return st.builds(change, _CUTS, _CUTS)


def _overwrite(parser: Parser) -> st.SearchStrategy:
    """Put a number, most likely an extreme one, in the place of another: what a length would be."""

    def change(place: int, number: int, size: int):
        word = (number % 2 ** (8 * size)).to_bytes(size, "big")

        def overwrite(data: bytes) -> bytes:
            at = place % (len(data) + 1)
            return data[:at] + word + data[at + size :]

        return overwrite

    return st.builds(change, _CUTS, st.sampled_from(_NUMBERS), st.sampled_from((1, 2, 4, 8)))


def _insert(parser: Parser) -> st.SearchStrategy:
    """Put in a word that means something to the parser, or any bytes, or a part of another example."""
    tokens = st.binary(min_size=1, max_size=16)
    if parser.tokens:
        tokens |= st.sampled_from(parser.tokens)

    def change(place: int, word: bytes):
        return lambda data: data[: place % (len(data) + 1)] + word + data[place % (len(data) + 1) :]

    return st.builds(change, _CUTS, tokens)


def _splice(parser: Parser) -> st.SearchStrategy:
    """Go on with another example from some place on."""

    def change(place: int, other: bytes):
        return lambda data: data[: place % (len(data) + 1)] + other[place % (len(other) + 1) :]

    return st.builds(change, _CUTS, st.sampled_from(parser.samples))


_MUTATIONS = (_flip, _cut, _overwrite, _insert, _splice)


def extremes(parser: Parser, rng: Random) -> bytes:
    """A valid example with an extreme length, or many of them one in the other, somewhere in it."""
    data = rng.choice(parser.samples)
    place = rng.randrange(len(data) + 1)
    if rng.random() < 0.5:
        size = rng.choice((1, 2, 4, 8))
        number = rng.choice(_NUMBERS) % 2 ** (8 * size)
        return data[:place] + number.to_bytes(size, "big") + data[place + size :]
    return data[:place] + rng.choice(_DEEP) * rng.randrange(1, 1_000) + data[place:]
