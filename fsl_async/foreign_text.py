"""Text that somebody else has written: what may be a party's name, and how words are shown, stored and sent.

Rules: words are printed, never obeyed: whatever would move a cursor, ring a bell or begin a line is escaped, and so is
half of a character, which no message and no file could hold. Whoever takes words in from outside (an operator's reason,
a peer's) makes them printable there, once; whoever shows words that came in a message does so again.
"""

from __future__ import annotations

LONGEST_NAME = 64
LONGEST_TEXT = 256
"""Bytes of a text in a message, or in a round's account."""


def is_name(name: object) -> bool:
    """Whether a party may be called so; quotes and backslashes would not stand in a file as they are."""
    return (
        isinstance(name, str) and 1 <= len(name) <= LONGEST_NAME and name.isprintable() and not set(name) & {'"', "\\"}
    )


def printable(words: str) -> str:
    """Words with every character escaped that is not printable."""
    if words.isprintable():
        return words
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in words)


def shortened(words: str) -> str:
    """As much of a printable text as a message or an account may carry."""
    return printable(words).encode()[:LONGEST_TEXT].decode(errors="ignore")
