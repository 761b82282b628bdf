"""Errors out of their groups."""

from __future__ import annotations

import pytest

from fsl_async.errors import leaves, sole, sole_error

ONE, TWO, THREE = ValueError("one"), KeyError("two"), OSError("three")


def test_leaves_are_the_errors_of_all_depths_in_order() -> None:
    group = ExceptionGroup("a", [ExceptionGroup("b", [ONE, TWO]), THREE])
    assert leaves(group) == [ONE, TWO, THREE]
    assert leaves(ONE) == [ONE]


def test_an_error_alone_in_its_groups_leaves_them() -> None:
    assert sole(ExceptionGroup("a", [ExceptionGroup("b", [ONE])])) is ONE
    assert sole(ONE) is ONE


def test_of_several_errors_none_is_sole() -> None:
    group = ExceptionGroup("a", [ONE, TWO])
    assert sole(group) is group


def test_a_caller_sees_the_sole_error_with_its_cause() -> None:
    error = ValueError("one")
    error.__cause__ = TWO
    with pytest.raises(ValueError, match="one") as caught, sole_error():
        raise ExceptionGroup("a", [error])
    assert caught.value.__cause__ is TWO
