"""Structs that hide their secrets when they are printed or logged."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Discreet(msgspec.Struct, frozen=True):
    """A frozen struct that names the fields it hides from `repr`."""

    hidden: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        shown = (name for name in self.__struct_fields__ if name not in self.hidden)
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"
