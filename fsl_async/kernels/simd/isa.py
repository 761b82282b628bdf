"""Instruction sets: which ones this processor has, which one is in use, and the key schedule of each.

Every set has a key class of its own. The compiler specialises kernels by the types of their arguments, so the class of
the keys *is* the choice of the instruction set: kernels are written once, compiled per set, and the compiler's cache on
disk keeps the sets apart. Keys of two sets never meet in one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError

Words = npt.NDArray[np.uint64]


def _hidden(keys: object) -> str:
    return f"{type(keys).__name__}(...)"


class Vaes512Keys(NamedTuple):
    """Round keys for four blocks to a register."""

    schedule: Words

    def __repr__(self) -> str:
        return _hidden(self)


class Vaes256Keys(NamedTuple):
    """Round keys for two blocks to a register."""

    schedule: Words

    def __repr__(self) -> str:
        return _hidden(self)


class AesniKeys(NamedTuple):
    """Round keys for one block to a register, x86."""

    schedule: Words

    def __repr__(self) -> str:
        return _hidden(self)


class Armv8Keys(NamedTuple):
    """Round keys for one block to a register, Armv8 with the cryptography extension."""

    schedule: Words

    def __repr__(self) -> str:
        return _hidden(self)


class PlainKeys(NamedTuple):
    """The key itself, for OpenSSL, which expands it anew in every call."""

    key: bytes

    def __repr__(self) -> str:
        return _hidden(self)


Keys = Vaes512Keys | Vaes256Keys | AesniKeys | Armv8Keys | PlainKeys


@dataclass(frozen=True, slots=True)
class Isa:
    """One way to compute AES.

    Attributes:
        name: what users call it.
        features: what the processor must have, in LLVM's names.
        keys: its key class.
        register: blocks to a register; the schedule repeats every round key that often.
        lanes: blocks a kernel handles at a time, so that several registers are in flight.
    """

    name: str
    features: frozenset[str]
    keys: type[Keys]
    register: int
    lanes: int


# Fastest first: the first usable one is the default.
ISAS = (
    Isa(
        "vaes512",
        frozenset({"x86_64", "aes", "pclmul", "vaes", "avx512f", "avx512bw", "avx512dq", "avx512vl"}),
        Vaes512Keys,
        4,
        16,
    ),
    Isa("vaes256", frozenset({"x86_64", "aes", "pclmul", "vaes", "avx2"}), Vaes256Keys, 2, 8),
    Isa("aesni", frozenset({"x86_64", "aes", "pclmul"}), AesniKeys, 1, 8),
    Isa("armv8", frozenset({"aarch64", "aes"}), Armv8Keys, 1, 8),
    Isa("plain", frozenset(), PlainKeys, 1, 1),
)
PLAIN = ISAS[-1]
"""No compiled kernels: NumPy and OpenSSL, whose AES uses what the processor has."""


def isa_names() -> tuple[str, ...]:
    """The instruction sets this processor has, fastest first; without the compiler, "plain" alone."""
    if not has_compiler():
        return (PLAIN.name,)
    features = processor_features()
    return tuple(isa.name for isa in ISAS if isa.features <= features)


@cache
def has_compiler() -> bool:
    """Whether kernels can be compiled; finding that out does not import the compiler, which takes half a second."""
    return find_spec("numba") is not None


@cache
def processor_features() -> frozenset[str]:
    """What the processor has in LLVM's names; `aes` means different instructions on different architectures."""
    from llvmlite import binding

    architecture = binding.get_process_triple().split("-")[0]
    present = {name for name, there in binding.get_host_cpu_features().items() if there}
    return frozenset(present | {architecture})


_BY_KEYS = {isa.keys: isa for isa in ISAS}


def isa_of(keys: type[Keys]) -> Isa:
    """The instruction set of a key class."""
    return _BY_KEYS[keys]


def find_isa(name: str) -> Isa:
    """The instruction set of a name.

    Raises:
        MisuseError: if there is none of that name or this processor lacks it.
    """
    if name != PLAIN.name and name not in isa_names():
        raise MisuseError(f"instruction set {name!r} is not usable here; this processor has {', '.join(isa_names())}")
    return next(isa for isa in ISAS if isa.name == name)


def schedule(isa: Isa, key: bytes) -> Keys:
    """The round keys of a 16-byte key, laid out for an instruction set.

    Raises:
        MisuseError: if the key is not 16 bytes.
    """
    if len(key) != 16:
        raise MisuseError(f"an AES-128 key is 16 bytes, this one is {len(key)}")
    if isa is PLAIN:
        return PlainKeys(key)
    from fsl_async.kernels.simd.expansion import expand_key

    return isa.keys(expand_key(key, isa.register))  # type: ignore[arg-type]
