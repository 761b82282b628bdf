"""The paper's own cost formulae with the paper's own parameters, and the numbers it prints.

Kept apart from `message_sizes`, which says what this system sends: here a bin is a real number, every tree has depth 9,
and a message has no envelope. Where a printed number does not follow from the printed formula, or cannot be what it
says, `docs/planner.md` has the arithmetic.

Source: paper §"Basic Protocols" (its paragraphs on efficiency and limitations), §"Optimisations", and the table
`basic-comm` of §"Protocol Efficiency".
"""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Formula:
    """What one client uploads in the paper's protocols, stash-less.

    Attributes:
        scale: ε, bins per selected row.
        depth: ⌈log Θ⌉ of every tree.
        element_bits: l = ⌈log |G|⌉.
        width: τ, weights of a mega-element.
        security: λ.
    """

    scale: float = 1.25
    depth: int = 9
    element_bits: int = 128
    width: int = 1
    security: int = 128

    @property
    def key_bits(self) -> int:
        """The public part of one bin's key: ⌈log Θ⌉·(λ + 2) + τ·l."""
        return self.depth * (self.security + 2) + self.width * self.element_bits

    def upload_bits(self, select: float) -> float:
        """ε·k·(⌈log Θ⌉·(λ + 2) + τ·l) + λ."""
        return self.scale * select * self.key_bits + self.security

    def hint_bits(self, select: float) -> float:
        """What a later epoch uploads when every bin gets a hint, ε·k·τ·l; the paper says k·l."""
        return self.scale * select * self.width * self.element_bits

    def trivial_bits(self, rows: float) -> float:
        """M·τ·l + λ."""
        return rows * self.width * self.element_bits + self.security

    def rate(self, fraction: float) -> float:
        """R, upload over that of the trivial protocol for c = k/m, without the two λ."""
        return fraction * self.scale * self.key_bits / (self.width * self.element_bits)

    @property
    def break_even(self) -> float:
        """The c at which R = 1."""
        return 1 / self.rate(1)


@dataclass(frozen=True)
class PrintedSize:
    """One cell of the table `basic-comm`.

    Attributes:
        rows: m.
        fraction: k/m.
        printed: MB, as printed.
    """

    rows: int
    fraction: float
    printed: float

    def computed(self, scale: float = 1.25) -> float:
        """The formula's value in MiB, for k = c·m taken as a real number."""
        return Formula(scale=scale).upload_bits(self.fraction * self.rows) / 8 / MEBIBYTE

    @property
    def trivial(self) -> float:
        """The trivial protocol's value in MiB."""
        return Formula().trivial_bits(self.rows) / 8 / MEBIBYTE


TABLE = tuple(
    PrintedSize(rows, fraction, printed)
    for rows, row in {
        2**10: (0.002, 0.009, 0.019),
        2**15: (0.063, 0.317, 0.633),
        2**20: (2.028, 10.14, 20.28),
    }.items()
    for fraction, printed in zip((0.01, 0.05, 0.10), row, strict=True)
)
"""The table `basic-comm`, "Communication efficiency"."""


@dataclass(frozen=True)
class PrintedRate:
    """A break-even rate that the paper states.

    Attributes:
        what: of which protocol.
        printed: c, as printed.
        formula: the parameters that the paper names for it.
    """

    what: str
    printed: float
    formula: Formula


RATES = (
    PrintedRate("basic", 0.078, Formula()),
    PrintedRate("union", 0.134, Formula(depth=5)),
    PrintedRate("mega-element", 0.531, Formula(width=18)),
)
