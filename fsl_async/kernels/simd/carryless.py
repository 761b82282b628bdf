"""Multipliers: the ways to compute carry-less products of words, and which of them goes with an instruction set.

A processor may have wide AES and no wide multiplication, so a multiplier is chosen by features of its own; but no
wider than the instruction set's registers. As for keys, every multiplier has a class of its own, and the class of the
argument is the choice: kernels are written once and compiled for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fsl_async.kernels.simd.isa import Isa


class Vpclmul512(NamedTuple):
    """Four products to an instruction, x86; the field is the words of a register."""

    words: int


class Vpclmul256(NamedTuple):
    """Two products to an instruction, x86; the field is the words of a register."""

    words: int


class Pclmul(NamedTuple):
    """One product to an instruction, x86; the field is the words of a register."""

    words: int


class Pmull(NamedTuple):
    """One product to an instruction, Armv8; the field is the words of a register."""

    words: int


class PlainProducts(NamedTuple):
    """NumPy's, in the other lane."""

    words: int


Multiplier = Vpclmul512 | Vpclmul256 | Pclmul | Pmull | PlainProducts


@dataclass(frozen=True, slots=True)
class Unit:
    """One way to multiply.

    Attributes:
        name: what tests and benchmarks call it.
        features: what the processor must have, in LLVM's names.
        multiplier: what kernels take.
    """

    name: str
    features: frozenset[str]
    multiplier: Multiplier


# Widest first.
UNITS = (
    Unit("vpclmul512", frozenset({"x86_64", "pclmul", "vpclmulqdq", "avx512f"}), Vpclmul512(8)),
    Unit("vpclmul256", frozenset({"x86_64", "pclmul", "vpclmulqdq", "avx2"}), Vpclmul256(4)),
    Unit("pclmul", frozenset({"x86_64", "pclmul"}), Pclmul(2)),
    Unit("pmull", frozenset({"aarch64", "aes"}), Pmull(2)),
)


def unit_for(isa: Isa, features: frozenset[str]) -> Unit:
    """The widest unit of a processor that is no wider than an instruction set's registers."""
    return next(unit for unit in UNITS if unit.features <= features and unit.multiplier.words <= 2 * isa.register)
