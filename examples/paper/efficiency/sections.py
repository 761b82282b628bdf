"""What the page says of parameters, seconds and bytes: the paper's figures beside ours."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial

from examples.paper.cells import Picture, Results, Section, Values
from examples.paper.efficiency import pictures
from examples.paper.efficiency.printed import (
    AGGREGATION,
    BIN_SIZES,
    EVALUATION,
    GENERATION,
    NIU_BYTES,
    NIU_PSU_BYTES,
    PAPER_DENSE,
    PAPER_SPARSE,
    SCALE_FACTORS,
    TRIVIAL,
)
from examples.paper.markdown import ABSENT, power, table
from fsl_async.costs.paper import MEBIBYTE, TABLE, Formula

SIZES = (2**10, 2**15, 2**20)
SEVERAL = 2**10
"""Rows from which on the fit of scale factors was made; below, the bound on small sets decides."""


def scale_factor(results: Results) -> Section:
    """Table 1."""
    lines = []
    for select in (2**5, 2**7, *SCALE_FACTORS):
        values = results.of(f"scale-{select}")
        printed = SCALE_FACTORS.get(select)
        label = [power(select), f"{printed}" if printed else ABSENT]
        lines.append(label + ([ABSENT] * 7 if values is None else _failure_line(select, values)))
    header = (
        "k", "ε, the paper", "ε, here with the paper's", "chance of failure", "failed", "ε, ours", "chance of failure",
        "failed", "seeds",
    )  # fmt: skip
    text = (
        "The paper chooses ε, bins for each selected row, so that hashing fails with a chance of at most 2^-40, by "
        "*input size*, which can only mean k here ([planner](planner.md)). Its three hash functions are here the "
        "permutations of a block's three segments. A hashing *failed* where some row has no bin in any placement, "
        "which the client's own algorithm decides exactly. Chances are the larger of cryptoTools' fit, from 2^10 "
        "rows on, and our bound, where it is below 1; the experiments can only show those far above 2^-40. The "
        "paper's scale factors miss 2^-40, by much where few rows are selected (1.25 is taken there): ours follow k, "
        "so that both the fit and the bound hold."
    )
    return Section(f"{text}\n\n{table(header, lines)}")


def _failure_line(select: int, values: Values) -> list[str]:
    line = []
    for side in ("paper", "ours"):
        one = values[side]
        line += [f"{one['scale']:.3f}", _chance(select, one), f"{one['failures']:,}"]
    return [*line, f"{values['ours']['seeds']:,}"]


def _chance(select: int, one: Values) -> str:
    """The larger of the fit and of our bound, as far as they say anything."""
    known = [one["log2_fit"]] if select >= SEVERAL else []
    known += [one["log2_bound"]] if one["log2_bound"] is not None and one["log2_bound"] < 0 else []
    return f"2^{max(known):.0f}" if known else "no bound"


def bin_size(results: Results) -> Section:
    """Table 2."""
    lines = []
    for rows, row in BIN_SIZES.items():
        values = results.of(f"bin-size-{rows}")
        for fraction, printed in row.items():
            percent = round(100 * fraction)
            label = [power(rows), f"{percent} %", f"{printed}"]
            lines.append(label + ([ABSENT] * 4 if values is None else _size_line(values[f"{percent}"])))
    header = (
        "m",
        "k/m",
        "the paper",
        "fullest bin, three hashes",
        "3 × fullest, one hash",
        "ours, every bin",
        "our depth",
    )
    text = (
        "The paper throws all m rows by three hash functions into ε·k bins and prints the fullest bin. Here the same "
        "is done with ideal hash functions (least and greatest over seeds). The paper's figures are near three times "
        "the fullest bin of *one* hash: as if all three had filled the same bin; three that fall apart fill the "
        "fullest bin with less. Our bins are not thrown: a segment is a permutation of the rows, cut into bins of "
        "one size, so the size is exact and needs no maximum. Where a few rows are selected of a small block, our ε "
        "is larger than the paper's (Table 1)."
    )
    return Section(f"{text}\n\n{table(header, lines)}")


def _size_line(one: Values) -> list[str]:
    return [
        _range(one["fullest"]),
        _range([3 * load for load in one["fullest_of_one_hash"]]),
        f"{one['ours']['bin_size']}",
        f"{one['ours']['depth']}",
    ]


def _range(figures: Sequence[int]) -> str:
    least, greatest = min(figures), max(figures)
    return f"{least}" if least == greatest else f"{least}–{greatest}"


def computation(results: Results) -> Section:
    """Table 3."""
    lines = []
    for rows in SIZES:
        for percent in (10, 20, 30):
            values = results.of(f"steps-{rows}-{percent}")
            line = [power(rows), f"{percent} %"]
            for step, printed in (
                ("generation", GENERATION[rows][percent]),
                ("evaluation", EVALUATION[rows][percent / 100]),
                ("aggregation", AGGREGATION[rows][percent]),
            ):
                ours = [ABSENT, ABSENT] if values is None else [_time(values[each][step]) for each in _SECURITIES]
                line += [f"{printed:g} s", *ours]
            lines.append(line)
    header = (
        "m", "k/m", "DPF Gen, the paper", "semi-honest", "verified", "DPF Eval, the paper", "semi-honest", "verified",
        "Aggregation, the paper", "semi-honest", "verified",
    )  # fmt: skip
    text = (
        "l = λ = 128. *Gen* is all that a client computes of a submission (places, trees, hints, proofs, the bytes "
        "to send), *Eval* all that a server computes of it, with every leaf added to the sum of its bin; "
        "*aggregation* folds the bins' sums to rows, once a round whatever the number of clients. *Verified* is what "
        "a task has by default; *semi-honest* is the paper's protocol. Ours: processor milliseconds on **one "
        "thread**, the median and in brackets least and greatest; the paper used 64 cores. Bins are as deep as they "
        "must be, in the paper too. The paper's 7.532 s at 2^10 and 30 % is also that of 2^20 and 10 %, and its "
        "0.018 s of aggregation stands at three sizes: [misplaced cells](planner.md)."
    )
    return Section(f"{text}\n\n{table(header, lines)}")


_SECURITIES = ("semi-honest", "verified")


def _time(seconds: Sequence[float]) -> str:
    middle, least, greatest = (1e3 * of(seconds) for of in (statistics.median, min, max))
    return f"{_digits(middle)} ms ({_digits(least)}–{_digits(greatest)})"


def _digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def by_size(results: Results) -> Section:
    """The paper's figure *Protocol efficiency experiments 1*."""
    text = (
        "Seconds of a client's generation, and of a server's evaluation and aggregation, for m from 2^10 to 2^20 at "
        "10, 20 and 30 %; measured as in Table 3, verified. The figure's data are not in the paper's text: crosses "
        "are its Table 3."
    )
    large = results.of("steps-33554432-10")
    if large:
        steps = {
            step: statistics.median(large["verified"][step]) for step in ("generation", "evaluation", "aggregation")
        }
        text += (
            " At 2^25 and 10 %, which the paper says to finish within 30 s, generation takes one thread "
            f"{steps['generation']:.1f} s, evaluation {steps['evaluation']:.1f} s and aggregation "
            f"{steps['aggregation']:.1f} s."
        )
    drawn = Picture("by-size", "Seconds by size of the model, at 10, 20 and 30 %.", partial(pictures.by_size, results))
    return Section(text, (drawn,))


def by_rate(results: Results) -> Section:
    """The paper's figure *Protocol efficiency experiments 2*."""
    first, last = results.of("steps-32768-10"), results.of("steps-32768-100")
    text = "m = 2^15, from 10 to 100 %, measured as in Table 3, verified."
    if first and last:
        times = {
            step: statistics.median(last["verified"][step]) / statistics.median(first["verified"][step])
            for step in ("generation", "evaluation", "aggregation")
        }
        text += (
            " The paper says that a server's seconds are almost independent of the rate, and that a client's grow "
            f"with it. Here ten times the rate takes {times['generation']:.1f} × a client's seconds (trees are fewer "
            f"levels deep), {times['evaluation']:.1f} × a server's evaluation and {times['aggregation']:.1f} × its "
            "aggregation."
        )
    drawn = Picture("by-rate", "Seconds by compression rate, m = 2^15.", partial(pictures.by_rate, results))
    return Section(text, (drawn,))


def communication(results: Results) -> Section:
    """Table 4."""
    lines = []
    for cell in TABLE:
        percent = round(100 * cell.fraction)
        line = [power(cell.rows), f"{percent} %", f"{cell.printed:g}", f"{TRIVIAL[cell.rows]:g}"]
        for bits in (128, 64):
            line += _upload_line(results.of(f"upload-{cell.rows}-{percent}-{bits}"))
        lines.append(line)
    header = (
        "m", "k/m", "the paper", "trivial, the paper", "semi-honest, l = 128", "verified", "trivial", "semi-honest, "
        "l = 64",
        "verified", "trivial",
    )  # fmt: skip
    text = [
        "What one client sends to both servers for a submission, in MB of 2^20 bytes as in the paper. Ours were "
        "counted on encrypted channels, framing included; the trivial protocol shares all weights. Bold: the trivial "
        "protocol, where it is cheaper than the verified one of the same l.",
        table(header, lines),
        "Ours is below the paper's where many rows are selected, because bins are then small and trees shallow, not "
        "9 levels deep; above it where few are, because the paper's ε is too small there (Table 1). By its formula "
        f"the paper's basic protocol is the cheaper one up to {100 * Formula().break_even:.1f} %.",
    ]
    return Section("\n\n".join(text))


def _upload_line(values: Values | None) -> list[str]:
    if values is None:
        return [ABSENT] * 3
    trivial = _mb(values["trivial"])
    cheaper = values["trivial"] < values["verified"]
    return [*(_mb(values[each]) for each in _SECURITIES), f"**{trivial}**" if cheaper else trivial]


def _mb(size: float) -> str:
    return f"{size / MEBIBYTE:.4f}" if size < 2**17 else f"{size / MEBIBYTE:.3f}"


def din(results: Results) -> Section:
    """The comparison with Niu et al."""
    lines = [
        ["Niu et al., the submodel alone", "128", _whole(NIU_BYTES), ABSENT, ABSENT],
        ["Niu et al., with private set union, at least", "128", _whole(NIU_PSU_BYTES), ABSENT, ABSENT],
        [
            "the paper: 1.4 for the embedding, 0.98 for the rest",
            "128",
            _whole(PAPER_SPARSE + PAPER_DENSE),
            ABSENT,
            "< 3 (client)",
        ],
    ]
    for bits in (128, 64):
        values = results.of(f"din-{bits}")
        label = [f"ours, l = {bits}, verified: retrieval and submission", f"{bits}"]
        if values is None:
            lines.append([*label, *[ABSENT] * 3])
        else:
            sizes = _whole(values["bytes_up"]), _whole(values["bytes_down"])
            lines.append([*label, *sizes, _seconds(values["seconds"])])
        lines.append(
            [f"trivial: all 3,617,023 weights, l = {bits}", f"{bits}", _whole(3_617_023 * bits / 8), ABSENT, ABSENT]
        )
    through = results.of("din-adapter")
    if through:
        label = [
            "ours, l = 64, through PyTorch (`examples/paper/adapter_cost.py`)",
            "64",
            _whole(through["bytes_up"]),
            ABSENT,
        ]
        lines.append([*label, _seconds(through["seconds"])])
    header = ("", "bits of a weight", "up", "down", "processor seconds, all parties, per client and round")
    text = (
        "The deep interest network of Niu et al.: an embedding of 197,372 rows of 18 weights, of which a client has "
        "418 (301 goods and 117 categories), and 64,327 weights that every client changes. Theirs are published "
        "figures, their system was not run; by the paper it protects with differential privacy; ours shows the "
        "servers nothing but the sum. In ours a client retrieves its rows privately, downloads the 64,327 weights "
        "and submits changes of both; four clients and both servers with real channels in memory, three rounds, sums "
        "compared with the clear. With 64 bits, of which 24 are a fraction, sums of these changes are exact. Bytes "
        "up are of one client, in a round, to both servers. All figures in MB have 2^20 bytes, as in the paper. "
        "Through PyTorch: eight clients, a round for each of three seeds, training left out."
    )
    return Section(f"{text}\n\n{table(header, lines)}")


def _seconds(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f}–{max(seconds):.2f})"


def _whole(size: float) -> str:
    return f"{size / MEBIBYTE:.2f} MB ({size:,.0f} bytes)"
