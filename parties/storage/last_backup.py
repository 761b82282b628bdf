"""When a store was last copied: the time of an empty file beside it, which says nothing of where the copy is."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["backed_up_at", "note_backup"]


def note_backup(store: Path) -> None:
    """Note that a copy has been made; it is one also where that cannot be noted, as on a full disk."""
    with suppress(OSError):
        _note(store).touch(mode=0o600)


def backed_up_at(store: Path) -> float:
    """When the last copy was made, in seconds since 1970; 0 where none was noted."""
    try:
        return _note(store).stat().st_mtime
    except OSError:
        return 0.0


def _note(store: Path) -> Path:
    return store.with_name(f"{store.name}.backed-up")
