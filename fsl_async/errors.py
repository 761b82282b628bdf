"""Every error a user of fsl-async can meet.

    FslError
    ├── MisuseError            the caller asked for something impossible; nothing has been sent or changed
    │   └── BoundExceededError an update is larger than the task's bound; nothing has been sent or changed
    ├── PeerViolationError     a peer broke the protocol; names the peer
    ├── WrongAnswerError       a server answered a retrieval wrongly; no row was handed out
    ├── ChannelError           a connection could not be made or was lost
    └── StorageError           what must be durable could not be stored

Each message says what was expected, what came instead and what to do about it. Errors of the libraries underneath are
translated into these once, where they enter.

Concurrent tasks raise errors in groups; `leaves` and `sole_error` take them out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import floor
from typing import Any, TypeVar, overload

from fsl_async.foreign_text import printable

_MAY_COUNT = (
    "the submission to round {} may be counted: do not send its values again in another round, unless both servers "
    "have signed that it was not"
)


class FslError(Exception):
    """The root of all errors raised on purpose by this distribution.

    Attributes:
        in_doubt: the round of a submission of which a byte may have been sent and whose outcome is not known. It may be
            counted, so its values must not be sent again in another round: the difference of the two sums would reveal
            them. 0 where there is no such submission.
    """

    in_doubt: int = 0

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}; {_MAY_COUNT.format(self.in_doubt)}" if self.in_doubt else text

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel whole from one process to another: the text, and attributes such as `in_doubt`."""
        return _again, (type(self), self.args, dict(self.__dict__))


def _again(kind: type[FslError], args: tuple[Any, ...], attributes: dict[str, Any]) -> FslError:
    """An error of another process; what its class is made of is not known here any more."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class MisuseError(FslError, ValueError):
    """The caller asked for something impossible; nothing has been sent or changed.

    The message says what was expected and what came instead. It is also a `ValueError`.
    """


class BoundExceededError(MisuseError):
    """An update is larger than the task's bound; nothing has been sent or changed.

    Scale the update down, as training does that clips its updates: `fsl_async.learning.clipped(update, bound)`.

    Attributes:
        norm: the L2 norm of the whole update, in the values' units.
        bound: the largest that the task allows.
        heaviest: the block of the largest norm, if it is known which one that is.
    """

    def __init__(self, norm: float, bound: float, heaviest: str = "", heaviest_norm: float = 0.0) -> None:
        block = f" (that of block {heaviest!r} alone {heaviest_norm:.9g}, the largest)" if heaviest else ""
        super().__init__(
            f"the update's L2 norm over all blocks is {norm:.12g}{block}, and the task's bound is {bound:.12g}: scale "
            f"the update by {floor(bound / norm * 999_990) / 1_000_000:.6f} or less, as training that clips its "
            "updates does (fsl_async.learning.clipped); a little less than the bound, because the ring rounds every "
            "weight"
        )
        self.norm = norm
        self.bound = bound
        self.heaviest = heaviest


class PeerViolationError(FslError):
    """A peer broke the protocol. Text that the peer has written is made printable in the message.

    Attributes:
        peer: the name of the party that broke it.
    """

    def __init__(self, peer: str, message: str) -> None:
        super().__init__(printable(f"{peer}: {message}"))
        self.peer = peer


class WrongAnswerError(FslError):
    """A server's answer to a retrieval is not what the model gives; no row has been handed out.

    Which of the two servers it was cannot be told, and the error is the same whichever rows were wanted. The trees of
    the retrieval, and of the session if it has one, are dropped, so the next call plants fresh ones. A server that is
    only damaged answers wrongly again: its operator has to look.
    """

    def __init__(self) -> None:
        super().__init__(
            "a server answered the retrieval wrongly: no row is returned, and its trees are dropped. Retrieve again; "
            "if that fails, tell the operators of both servers: one of the two lies or is damaged, and this client "
            "cannot know which"
        )


class ChannelError(FslError, ConnectionError):
    """A connection could not be made, was refused or was lost.

    The classes below it, in the package `transport`, say which, and what can be done about it. It is also a
    `ConnectionError`.
    """


class StorageError(FslError):
    """What must be durable before it is acknowledged could not be stored.

    `parties.DiskFullError` says that a later attempt may succeed, `parties.StoreLostError` that none will.
    """


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
