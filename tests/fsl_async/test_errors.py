"""Errors that leave their process, as a pool of processes hands them on by pickling; and errors out of their groups."""

import pickle

import pytest

from fsl_async.errors import (
    BoundExceededError,
    ChannelError,
    FslError,
    PeerViolationError,
    WrongAnswerError,
    leaves,
    sole,
    sole_error,
)
from parties.errors import RequestDeniedError, ServerBusyError, SumRefusedError
from transport import MessageTooLongError

ERRORS = (
    BoundExceededError(3.0, 1.0, "items", 2.5),
    PeerViolationError("S0", "lied"),
    WrongAnswerError(),
    ChannelError("S0 is away"),
    MessageTooLongError(7, 5),
    RequestDeniedError(0, "conflict", "twice"),
    ServerBusyError(1, "no room", 30.0),
    SumRefusedError(4, "too much"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_arrives_in_another_process_as_it_was(error: FslError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_what_is_in_doubt_stays_in_doubt_in_another_process() -> None:
    """A caller that did not hear of it would send its values again."""
    error = PeerViolationError("S1", "lied")
    error.in_doubt = 12
    again = pickle.loads(pickle.dumps(error))
    assert again.in_doubt == 12
    assert "the submission to round 12 may be counted" in str(again)


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
