"""Errors that leave their process: a pool of processes hands them on by pickling."""

from __future__ import annotations

import pickle

import pytest

from fsl_async.errors import BoundExceededError, ChannelError, FslError, PeerViolationError, WrongAnswerError
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
