"""Lists of clients' names, as the two servers send each other who has asked to take part.

A list has one form: sorted, each name once, and accepted only if packing it again gives the same bytes. A name may be
unknown here, because a client may have enrolled at the other server only; but it must be a valid name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgpack
import msgspec

from fsl_async.errors import PeerViolationError
from fsl_async.foreign_text import LONGEST_NAME, is_client_name

LONGEST_PACKED_NAME = 4 * LONGEST_NAME + 5


def pack_names(names: Iterable[str]) -> bytes:
    """Canonical bytes of a list of names."""
    return bytes(msgpack.packb(sorted(names)))


def unpack_names(data: bytes | memoryview, limit: int, sender: str) -> tuple[str, ...]:
    """Read a packed list of at most `limit` names.

    Raises:
        PeerViolationError: it is not such a list, or not in canonical order; or a name on it cannot be a client's.
    """
    try:
        # Decoded with its type: an untyped decoder would allocate memory for every nested list that is declared.
        kind = list[Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]]
        names = msgspec.msgpack.decode(data, type=kind)
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise PeerViolationError(sender, f"sent a list of names that cannot be read: {error}") from error
    if len(names) > limit:
        raise PeerViolationError(sender, f"sent a list of {len(names)} names, at most {limit} are allowed")
    for name in names:
        if not is_client_name(name):
            raise PeerViolationError(sender, f"sent a list of names with {name!r} on it, which names no client")
    if len(set(names)) != len(names) or pack_names(names) != bytes(data):
        raise PeerViolationError(sender, "sent a list of names that is not in canonical form")
    return tuple(names)
