"""What is said of one parser: how to call it, what it may raise, what it reads without complaint, what memory it takes.

A parser may refuse bytes with one of its errors and in no other way. It checks itself what else must hold of bytes
that it accepts, such as that they are what the library would have written; a failed check is an `AssertionError`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from fsl_async.errors import FslError

FAST, SLOW, HEAVY = 100, 3, 1
"""Shares of a run: a parser gets about as many of its executions as others of its kind take the same time for."""


@dataclass(frozen=True)
class Parser:
    """One parser.

    Attributes:
        name: as the command knows it.
        read: takes bytes; what it returns is of no interest.
        make_samples: bytes that it reads without complaint, as the library itself writes them.
        errors: what it may raise.
        source: what an error's text must contain: the source of the bytes.
        share: of a run over all parsers.
        longest: bytes of input worth trying.
        memory: bytes that it may take for any input, and
        memory_per_byte: besides them for each byte of it.
        tokens: byte strings that mean something to it, for a fuzzer to build from.
    """

    name: str
    read: Callable[[bytes], object]
    make_samples: Callable[[], Sequence[bytes]]
    errors: tuple[type[FslError], ...]
    source: str = ""
    share: int = FAST
    longest: int = 4_096
    memory: int = 2**20
    memory_per_byte: int = 64
    tokens: tuple[bytes, ...] = ()

    @cached_property
    def samples(self) -> tuple[bytes, ...]:
        """The samples, made once."""
        return tuple(self.make_samples())

    def allowed(self, size: int) -> int:
        """Bytes of memory that an input of so many bytes may take."""
        return self.memory + self.memory_per_byte * size


def accepts(parser: Parser, data: bytes) -> bool:
    """Whether a parser reads bytes without complaint; whatever it may not do comes out as it is."""
    try:
        parser.read(data)
    except parser.errors as error:
        if parser.source not in str(error):
            raise AssertionError(f"{parser.name}: {error!r} does not say whose bytes: {parser.source!r}") from error
        return False
    return True
