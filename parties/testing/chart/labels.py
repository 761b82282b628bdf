"""Short texts for charts: sizes, and words that fit and cannot spoil a line."""

from __future__ import annotations

__all__ = ["cut", "plain", "size_text"]


def size_text(size: int) -> str:
    """A number of bytes, as text with two or three digits."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.0f} {name}" if size >= 100 * unit else f"{size / unit:.1f} {name}"
    return f"{size} B"


def plain(text: str) -> str:
    """Text without line ends and control characters, because text from peers may contain anything."""
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def cut(text: str, room: int) -> str:
    """The beginning of a text, at most `room` characters long and without control characters."""
    return plain(text if len(text) <= room else f"{text[: max(room - 1, 0)]}…")
