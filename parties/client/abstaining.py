"""A client that takes part in a round whatever happens: where it submits nothing else, it submits zeros.

A server can add an error to a row of the model and look who stays away from the next rounds: those who retrieved that
row. So an error between a retrieval and its submission, in training or in a check of what came of it, must not show,
and a program that ends because of it would be missing from the round after, too.

Rules: zeros go to the round that the client has entered, and to no other; a submission of which a byte may have left is
left alone. Where zeros are submitted in place of an error, it is logged and goes no further; every other error is
raised. Those about servers and connections say nothing about rows, nor does an interrupt, so they are left alone.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from fsl_async.errors import FslError, MisuseError

_log = logging.getLogger("parties.client")


@asynccontextmanager
async def taking_part(abstain: Callable[[], Awaitable[bool]]) -> AsyncIterator[None]:
    """Abstain at the end of the context if nothing was submitted; `abstain` tells whether that was so."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if _is_elsewhere(error) or not await abstain():
            raise
        _tell(error)
    else:
        await abstain()


@contextmanager
def taking_part_blocking(abstain: Callable[[], bool]) -> Iterator[None]:
    """The same for a program that is not async."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if _is_elsewhere(error) or not abstain():
            raise
        _tell(error)
    else:
        abstain()


def _is_elsewhere(error: BaseException) -> bool:
    """Whether an error is about servers, rounds, connections or the disk, and not about what the caller computes."""
    return isinstance(error, FslError) and not isinstance(error, MisuseError)


def _tell(error: BaseException) -> None:
    _log.error("zeros were submitted, because of an error between retrieval and submission", exc_info=error)
