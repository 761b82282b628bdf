"""What a store gives back, read as the type it was written as.

A store is a party's own, so what cannot be read is damaged, or was written by another release; either way it is the
store's error, and never a peer's.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fsl_async.digests import Buffer
from fsl_async.errors import StorageError

__all__ = ["read_kept"]


def read_kept(data: Buffer, kind: Any, place: str) -> Any:
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
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:  # the latter for a text that is none
        raise StorageError(
            f"{place} cannot be read: {error}; it is damaged or was written by another release: go on with that one, "
            "or restore a backup"
        ) from error
