"""Many small cases in one test: hundreds of generated ones cost more as tests of their own than they take to run."""

import inspect
import os
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import product
from typing import Any

import pytest
from _pytest.mark import ParameterSet

MANY = int(os.environ.get("MANY", "1"))
"""How many times as many tries, where more of them tell more: `make security` has ten times as many."""


def in_turn(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What `pytest.mark.parametrize` is, in one test: the first case that fails is named, and those after it wait.

    Fixtures are made once for all cases, so this is for tests that leave them as they were. The values of a mapping
    (`KINDS.values()`) are named by its keys.
    """
    keys = [name.strip() for name in names.split(",")]
    values = [(case,) if len(keys) == 1 else tuple(case) for case in cases]
    titles = list(getattr(cases, "mapping", values))
    assert values, "without a case nothing is tested"

    @contextmanager
    def named(title: object) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            error.add_note(f"{names} = {title!r}")
            raise

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(test)
        def plain(**fixtures: Any) -> None:
            for title, case in zip(titles, values, strict=True):
                with named(title):
                    test(**fixtures, **dict(zip(keys, case, strict=True)))

        @wraps(test)
        async def coroutine(**fixtures: Any) -> None:
            for title, case in zip(titles, values, strict=True):
                with named(title):
                    await test(**fixtures, **dict(zip(keys, case, strict=True)))

        loop: Any = coroutine if inspect.iscoroutinefunction(test) else plain
        signature = inspect.signature(test)
        loop.__signature__ = signature.replace(
            parameters=[each for each in signature.parameters.values() if each.name not in keys]
        )
        return loop  # type: ignore[no-any-return]

    return decorate


def often(count: int, cases: Sequence[Any]) -> list[Any]:
    """So many of the cases in every run, and the rest in the slow tests."""
    return [*cases[:count], *(pytest.param(case, marks=pytest.mark.slow) for case in cases[count:])]


def one_in(count: int, *dimensions: Iterable[Any]) -> list[ParameterSet]:
    """Every combination of the dimensions' values: one in so many in every run, the others in the slow tests.

    Where a dimension has `count` values or more, every combination of the other dimensions' values is in every run.
    """
    return [
        pytest.param(*(value for _, value in chosen), marks=_unless_in_turn(count, *(place for place, _ in chosen)))
        for chosen in product(*(list(enumerate(values)) for values in dimensions))
    ]


def sides(cases: Iterable[Any], servers: Sequence[Any] = (0, 1)) -> list[ParameterSet]:
    """Every case with either server: with one of them in every run, in turn, and with the other in the slow tests."""
    return [
        pytest.param(
            case,
            server,
            id=f"{getattr(case, 'name', case)}-by S{place}",
            marks=_unless_in_turn(2, number, place),
        )
        for number, case in enumerate(cases)
        for place, server in enumerate(servers)
    ]


def peak_of(work: Callable[[], object]) -> int:
    """Bytes of memory that some work takes at once, beyond those that are taken already."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _unless_in_turn(count: int, *places: int) -> Sequence[pytest.MarkDecorator]:
    """The mark of the slow tests, but for one in so many combinations."""
    return () if sum(places) % count == 0 else (pytest.mark.slow,)
