"""Errors out of the groups in which concurrent tasks raise them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, overload

ErrorT = TypeVar("ErrorT", bound=BaseException)


@overload
def leaves(error: BaseExceptionGroup[ErrorT]) -> list[ErrorT]: ...
@overload
def leaves(error: BaseException) -> list[BaseException]: ...
def leaves(error: BaseException) -> list[Any]:
    """The errors in a group and in the groups within it, in order; an error that is no group is its only leaf."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in leaves(inner)]


def sole(error: BaseException) -> BaseException:
    """The error that is alone in a group, however deep; any other error or group as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@contextmanager
def sole_error() -> Iterator[None]:
    """Take an error that is alone in its group out of it, so that the caller sees what was raised."""
    try:
        yield
    except BaseExceptionGroup as group:
        error = sole(group)
        raise error from error.__cause__
