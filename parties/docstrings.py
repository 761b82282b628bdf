"""One text for a call that several classes have: `help` shows it whole on each of them, and the source has it once.

A docstring that begins "See `Store.keys`." stands for that text in a class that is `@documented_by(Store)`. What
follows there comes after the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import cleandoc, getdoc
from typing import TypeVar

ClassT = TypeVar("ClassT")
POINTER = re.compile(r"See `(?:[\w.]+\.)?(\w+)`(?:\.|[;:] *)")


def documented_by(original: type, *, awaited: bool = True) -> Callable[[type[ClassT]], type[ClassT]]:
    """Put the text of `original`'s own member where a docstring begins "See `Original.name`".

    Args:
        original: whose texts they are.
        awaited: whether calls are awaited here, too; else examples lose their `await` and `async`.
    """

    def document(cls: type[ClassT]) -> type[ClassT]:
        for member in vars(cls).values():
            own = cleandoc(getattr(member, "__doc__", None) or "")  # without docstrings (-OO) there is nothing to do
            if pointer := POINTER.match(own):
                text = getdoc(getattr(original, pointer[1])) or ""
                if not awaited:
                    text = re.sub(r"\b(await|async) ", "", text)
                added = own[pointer.end() :]
                member.__doc__ = f"{text}\n\n{added[:1].upper()}{added[1:]}".rstrip()
        return cls

    return document
