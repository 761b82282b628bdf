"""Decoding what a store holds, as the type that was written.

A store is a party's own. So what cannot be decoded is damaged or was written by another release, and the error is a
`StorageError`, never a peer's violation. The same holds where recorded events do not lead from one state to the next.
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
    """Decode a value or an entry of a store.

    Args:
        data: its bytes.
        kind: the type, or union of types, that was written.
        place: what to call it in a message.

    Raises:
        StorageError: it is not one of them.
    """
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # invalid UTF-8; nested too deep
        raise _unreadable(place, error) from error


@contextmanager
def replaying(journal: str) -> Iterator[None]:
    """Within the block recorded events are taken again.

    Raises:
        StorageError: one of them does not follow from those before it.
    """
    try:
        yield
    except (UnexpectedEvent, PeerViolationError, MisuseError) as error:
        raise _unreadable(journal, error) from error


def _unreadable(place: str, error: Exception) -> StorageError:
    return StorageError(
        f"{place} cannot be read: {error}; it is damaged or was written by another release: use that release, or "
        f"{DAMAGED}"
    )
