"""Text that somebody else has written: what may be a party's name, and how such text is shown, stored and sent.

Rules: foreign text is made printable before it is shown. Characters that would move a cursor, ring a bell or begin a
line are escaped, and so are lone surrogates, which no message and no file can hold. Code that takes text from outside
(an operator's reason, a peer's) makes it printable once, where it enters; code that shows text from a message does so
again.
"""

from __future__ import annotations

SERVERS = ("S0", "S1")
"""The servers' names, which no client can have."""

LONGEST_NAME = 64
LONGEST_TEXT = 256
"""Bytes of a text in a message, or in a round's report."""


def is_name(name: object) -> bool:
    """Whether a party may have this name; quotes and backslashes are refused, because files would escape them."""
    return (
        isinstance(name, str) and 1 <= len(name) <= LONGEST_NAME and name.isprintable() and not set(name) & {'"', "\\"}
    )


def is_client_name(name: object) -> bool:
    """Whether a client may have this name: it is not a server's."""
    return is_name(name) and name not in SERVERS


def printable(text: str) -> str:
    """The text with every character escaped that is not printable."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def shortened(text: str) -> str:
    """The beginning of the printable text, as much as a message or a round's report may carry."""
    return printable(text).encode()[:LONGEST_TEXT].decode(errors="ignore")
