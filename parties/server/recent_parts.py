"""Public parts that were put a moment ago: forwarded and added from here, they are neither read back nor hashed again.

Rule: what is here is in the blobs as well, durably; so whatever has no room is let go, the oldest first.
"""

from __future__ import annotations

from typing import Final

__all__ = ["RECENT_BYTES", "RecentParts", "kept_alive"]

RECENT_BYTES: Final = 32 << 20
"""Of all parts that are held."""


class RecentParts:
    """Parts in memory, by the names of their blobs.

    Args:
        room: bytes in all; a part counts with all of the message that it came in, which it keeps alive.
    """

    def __init__(self, room: int = RECENT_BYTES) -> None:
        self._room = room
        self._parts: dict[str, memoryview] = {}

    def hold(self, name: str, part: memoryview) -> None:
        """Hold a part that has been put."""
        self.let_go(name)
        self._parts[name] = part.toreadonly()
        self._room -= kept_alive(part)
        while self._room < 0:
            self.let_go(next(iter(self._parts)))

    def find(self, name: str) -> memoryview | None:
        """The part of that name, if it is held."""
        return self._parts.get(name)

    def let_go(self, name: str) -> None:
        """Hold that part no longer, if it is held."""
        part = self._parts.pop(name, None)
        if part is not None:
            self._room += kept_alive(part)

    def clear(self) -> None:
        """Hold none."""
        for name in list(self._parts):
            self.let_go(name)


def kept_alive(view: memoryview) -> int:
    """Bytes of all that a view is a part of."""
    return memoryview(view.obj).nbytes
