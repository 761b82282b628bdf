"""The two lanes on which the same passes are computed: compiled kernels, and NumPy with OpenSSL's AES.

Shapes are checked and memory is allocated once, above this seam; below it stand the innermost passes, twice. Both
lanes give the same bits. Keys carry their lane, as they carry their instruction set: a pass that takes keys follows
them, and one that takes none follows the active instruction set. So a process may change lanes between any two calls.
A lane is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from fsl_async.kernels.simd.isa import PLAIN, Isa, Keys, PlainKeys, find_isa, has_compiler, isa_names, isa_of

active: list[Isa] = []
"""The instruction set of new keys, once one is chosen (`aes.select_isa`)."""


def compiles() -> bool:
    """Whether the active instruction set has compiled kernels, or will have once it is chosen."""
    return active[0] is not PLAIN if active else has_compiler()


def passes_of(*keys: Keys) -> ModuleType:
    """The passes that go with keys: plain ones if any is plain, for they take the keys of both lanes."""
    return _lane(PLAIN if any(isinstance(each, PlainKeys) for each in keys) else isa_of(type(keys[0])))


def passes() -> ModuleType:
    """The passes of the active instruction set, for what needs no keys."""
    return _lane(_active())


def _active() -> Isa:
    return active[0] if active else find_isa(isa_names()[0])


def _lane(isa: Isa) -> ModuleType:
    return import_module("fsl_async.kernels.plain" if isa is PLAIN else "fsl_async.kernels.compiled")
