"""What a store gives back, read as the type it was written as.

A store is a party's own, so what cannot be read is damaged, or was written by another release; either way it is the
store's error, and never a peer's. So it is where recorded events do not lead from one state to the next: they did.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from fsl_async.digests import Buffer
from fsl_async.errors import MisuseError, PeerViolationError, StorageError
from fsl_async.protocols.machine import UnexpectedEvent
from parties.storage.store import DAMAGED

__all__ = ["decode_stored", "replaying"]


def decode_stored(data: Buffer, kind: Any, place: str) -> Any:
    """Read a value or an entry of a store.

    Args:
        data: its bytes.
        kind: the type, or union of types, that was written.
        place: what to call it in a message.

    Raises:
        StorageError: it is not one of them.
    """
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # a text that is none; nested too deep
        raise _unreadable(place, error) from error


@contextmanager
def replaying(journal: str) -> Iterator[None]:
    """A recorded event is taken again within the block.

    Raises:
        StorageError: it does not follow on those before it.
    """
    try:
        yield
    except (UnexpectedEvent, PeerViolationError, MisuseError) as error:
        raise _unreadable(journal, error) from error


def _unreadable(place: str, error: Exception) -> StorageError:
    return StorageError(
        f"{place} cannot be read: {error}; it is damaged or was written by another release: go on with that one, or "
        f"{DAMAGED}"
    )
