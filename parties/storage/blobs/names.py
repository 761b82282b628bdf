"""Which names blobs have: parts between slashes, as in `round-00000012/parts/alice/submit-0/5f…`."""

from __future__ import annotations

from fsl_async.errors import MisuseError

LONGEST_NAME = 1_024
"""Characters of a name."""


def checked(name: str) -> str:
    """A name that can name a blob.

    Raises:
        MisuseError: it is empty or too long, has an empty part, one of dots alone, or a character that is not printable
            ASCII.
    """
    parts = name.split("/")
    wrong = not name.isascii() or not name.isprintable() or "\\" in name or len(name) > LONGEST_NAME
    if wrong or any(not part.strip(".") for part in parts):
        raise MisuseError(
            f"{name!r} cannot name a blob: parts of printable ASCII between slashes, none empty or of dots alone, "
            f"{LONGEST_NAME} characters in all"
        )
    return name


def checked_prefix(prefix: str) -> str:
    """A prefix that stands for one blob, or for all below a folder: empty, or a name with or without a last slash.

    Raises:
        MisuseError: no blob's name can begin with it.
    """
    if prefix:
        checked(prefix.removesuffix("/"))
    return prefix


def is_below(name: str, prefix: str) -> bool:
    """Whether erasing a prefix erases the blob of that name."""
    return name == prefix or not prefix or (prefix.endswith("/") and name.startswith(prefix))
