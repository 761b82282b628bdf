"""The experiments on parameters, seconds and bytes: their cells, with all settings."""

from __future__ import annotations

from examples.paper.cells import Cell, Experiment
from examples.paper.efficiency import communication, computation, din, hashing, sections
from examples.paper.efficiency.printed import SCALE_FACTORS

_SEEDS = {2**5: 20_000, 2**7: 20_000, 2**10: 2_000, 2**15: 100, 2**20: 5, 2**25: 1}

SCALES = tuple(
    Cell(
        f"scale-{select}", hashing.failures,
        {
            "rows": max(2**20, 4 * select), "select": select,
            "scale": SCALE_FACTORS.get(select, SCALE_FACTORS[2**10]), "seeds": seeds,
        },
        seconds=25 if select > 2**20 else 5,
    )
    for select, seeds in _SEEDS.items()
)  # fmt: skip

BIN_SIZES = tuple(
    Cell(
        f"bin-size-{rows}", hashing.bin_sizes,
        {"rows": rows, "percents": [1, 10, 30, 50, 70], "scale": scale, "seeds": 20 if rows < 2**20 else 3},
        seconds=35 if rows > 2**20 else 1,
    )
    for rows, scale in SCALE_FACTORS.items()
)  # fmt: skip


def _steps(rows: int, percent: int) -> Cell:
    repeats = 9 if rows <= 2**17 else 5 if rows <= 2**20 else 2
    parameters = {"rows": rows, "select": round(rows * percent / 100), "repeats": repeats}
    return Cell(f"steps-{rows}-{percent}", computation.steps, parameters, seconds=0.2 + 1.2 * repeats * rows / 2**20)


COMPRESSIONS = (10, 20, 30)
STEPS = {(2**n, percent): _steps(2**n, percent) for n in range(10, 21) for percent in COMPRESSIONS}
SWEEP = {percent: STEPS.get((2**15, percent)) or _steps(2**15, percent) for percent in range(10, 101, 10)}
LARGE = _steps(2**25, 10)
"""The size up to which the paper says that everything takes less than 30 s."""
TABLE_3 = tuple(cell for (rows, _), cell in STEPS.items() if rows in (2**10, 2**15, 2**20))

UPLOADS = tuple(
    Cell(
        f"upload-{rows}-{percent}-{bits}", communication.upload,
        {"rows": rows, "select": round(rows * percent / 100), "bits": bits}, seconds=0.1 + rows / 2**20,
    )
    for bits in (128, 64)
    for rows in (2**10, 2**15, 2**20)
    for percent in (1, 5, 10)
)  # fmt: skip

_DIN = {"rows": 197_372, "width": 18, "select": 418, "dense": 64_327, "fraction_bits": 24, "clients": 4, "rounds": 3}
DIN = tuple(Cell(f"din-{bits}", din.rounds, _DIN | {"bits": bits}, seconds=15) for bits in (64, 128))
ADAPTER = Cell("din-adapter", din.adapter, {"clients": 8, "seeds": [1, 2, 3]}, needs=("torch",), seconds=20)

EXPERIMENTS = (
    Experiment("table-1", "Table 1: scale factor", SCALES, sections.scale_factor),
    Experiment("table-2", "Table 2: maximum bin size", BIN_SIZES, sections.bin_size),
    Experiment("table-3", "Table 3: computation of the basic protocol", TABLE_3, sections.computation),
    Experiment("figure-1", "Figure: efficiency by size of the model", (*STEPS.values(), LARGE), sections.by_size),
    Experiment("figure-2", "Figure: efficiency by compression rate", tuple(SWEEP.values()), sections.by_rate),
    Experiment("table-4", "Table 4: communication of the basic protocol", UPLOADS, sections.communication),
    Experiment("din", "Compared with Niu et al.: the deep interest network", (*DIN, ADAPTER), sections.din),
)
