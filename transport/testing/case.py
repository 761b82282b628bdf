"""One case of the suite: how it is written, and how it is run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import trio

from fsl_async.error_groups import sole_error
from transport.listener import Transport
from transport.testing.lab import Lab

PATIENCE = 60.0
"""Seconds after which a case has hung."""


class ConformanceError(AssertionError):
    """A transport does not do what it must; the message says what."""


@dataclass(frozen=True)
class Case:
    """Something that a transport must do.

    Attributes:
        name: in one word.
        rule: what the transport must do.
        check: tries it in a laboratory.
    """

    name: str
    rule: str
    check: Callable[[Lab], Awaitable[None]]

    def __str__(self) -> str:
        return self.name

    def run(self, make: Callable[[], Transport], address: str) -> None:
        """Try the case in a loop of its own.

        Args:
            make: makes the transport; server and clients share it.
            address: where it can listen; if the transport reports another one, that is dialled.

        Raises:
            ConformanceError: the transport does not keep the rule.
        """
        trio.run(partial(self.attempt, make, address))

    async def attempt(self, make: Callable[[], Transport], address: str) -> None:
        """The same as `run`, in a loop that runs."""
        try:
            with trio.move_on_after(PATIENCE) as scope, sole_error():
                async with trio.open_nursery() as nursery:
                    await self.check(Lab(make(), address, nursery))
                    nursery.cancel_scope.cancel()
        except ConformanceError:
            raise
        except Exception as error:
            raise ConformanceError(f"{type(error).__name__}: {error}; but {self.rule}") from error
        if scope.cancelled_caught:
            raise ConformanceError(f"it has hung for {PATIENCE:g} s; but {self.rule}")


class Suite:
    """Collects cases; the function's name is the case's, its docstring the rule.

    Attributes:
        cases: in the order in which they are written.
    """

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def case(self, check: Callable[[Lab], Awaitable[None]]) -> Callable[[Lab], Awaitable[None]]:
        """Take a case."""
        self.cases.append(Case(check.__name__, inspect.getdoc(check) or "", check))
        return check


def require(condition: object, otherwise: str) -> None:
    """Fail the case unless a condition holds.

    Raises:
        ConformanceError: it does not; the message says what is wrong instead.
    """
    if not condition:
        raise ConformanceError(otherwise)


@contextmanager
def expect(*kinds: type[BaseException], text: str = "") -> Iterator[None]:
    """Fail the case unless one of these errors comes out of the context, with a message that matches.

    Raises:
        ConformanceError: none comes, or another one.
    """
    names = " or ".join(kind.__name__ for kind in kinds)
    try:
        yield
    except kinds as error:
        require(re.search(text, str(error)), f"{names} came as expected, but says {str(error)!r}")
    except Exception as error:
        raise ConformanceError(f"{names} expected, and {type(error).__name__} came: {error}") from error
    else:
        raise ConformanceError(f"{names} expected, and nothing came")
