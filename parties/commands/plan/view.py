"""Presents a plan: as a table, compared with the paper, and as a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fsl_async.costs.paper import RATES, TABLE
from fsl_async.costs.variants import Name, Question, build, names_of
from fsl_async.errors import MisuseError
from fsl_async.task import Block, Sparse
from parties.commands.plan.advice import SETTINGS
from parties.commands.plan.figures import Assumptions, percent, size
from parties.commands.plan.plan import Costed, Plan, crossover, framed, question_of

PAPER_ROWS = 2**20
PAPER_BITS = 128
POINTS = 33


# ---- the table


def text_of(plan: Plan) -> str:
    """The plan as text; its table has at most 120 columns."""
    question, task = plan.question, plan.question.asked
    others = [f'block "{block.name}" {_shape(block)}' for block in task.blocks if block.name != question.block]
    heading = "\n".join(
        [
            f'block "{question.block}" {_shape(task.block(question.block))}, its union {question.union:,} rows',
            *others,
            f'selection="{task.selection}", updates="{task.updates}", alignment="{task.alignment}", '
            f'security="{task.security}", bits={task.ring.bits}',
            f"clients={question.clients:,}, rounds={question.rounds}",
        ]
    )
    columns = list(plan.costed.values())
    lines = [["", *(costed.variant.name.value for costed in columns)]]
    lines += [[label, *(show(costed) for costed in columns)] for label, show in _LINES]
    lines += [["worth it up to k/m", *(_limit(plan, costed.variant.name) for costed in columns)]]
    notes = [
        "Bytes are those on the wire, except for the expected length of a union's list; seconds are estimates with "
        f"{'speeds measured here' if plan.measured else 'typical speeds'}, without overlap.",
        *plan.why,
    ]
    return "\n".join([plan.verdict, "", heading, "", *aligned(lines), "", *notes])


def _shape(block: Block) -> str:
    if isinstance(block, Sparse):
        share = percent(block.select / block.rows)
        return f"rows={block.rows:,}, select={block.select:,} ({share}), width={block.width}"
    return f"dense, size={block.weights:,}"


def _trees(show: Callable[[Any], str]) -> Callable[[Costed], str]:
    return lambda costed: " + ".join(show(shape) for shape in costed.variant.shapes) or "–"


_LINES: tuple[tuple[str, Callable[[Costed], str]], ...] = (
    ("selection=", lambda costed: SETTINGS[costed.variant.name].get("selection", "–")),
    ("alignment=", lambda costed: SETTINGS[costed.variant.name].get("alignment", "–")),
    ("width=", lambda costed: f"{costed.variant.width}"),
    ("bins", _trees(lambda shape: f"{shape.bins}")),
    ("bin size Θ", _trees(lambda shape: f"{shape.bin_size}")),
    ("depth", _trees(lambda shape: f"{shape.depth}")),
    ("positions per leaf", _trees(lambda shape: f"{shape.positions}")),
    ("log₂ failure", _trees(lambda shape: f"{shape.log2_failure:.1f}")),
    ("client sends, first round", lambda costed: size(costed.first.up)),
    ("  each later round", lambda costed: size(costed.later.up)),
    ("  all rounds", lambda costed: size(costed.total.up)),
    ("client receives, a round", lambda costed: size(costed.later.down)),
    ("  all rounds", lambda costed: size(costed.total.down)),
    ("server to server, first round", lambda costed: size(costed.first.link)),
    ("  all rounds", lambda costed: size(costed.total.link)),
    ("AES blocks, client", lambda costed: f"{costed.first.client_blocks:.3g}"),
    ("AES blocks, server per client", lambda costed: f"{costed.first.server_blocks:.3g}"),
    ("seconds, first round", lambda costed: f"{costed.first.seconds:.3g}"),
    ("  client's transfers", lambda costed: f"{costed.first.transfer_seconds:.3g}"),
    ("  client computes", lambda costed: f"{costed.first.client_seconds:.3g}"),
    ("  server computes", lambda costed: f"{costed.first.server_seconds:.3g}"),
    ("  between servers", lambda costed: f"{costed.first.link_seconds:.3g}"),
    ("seconds, all rounds", lambda costed: f"{costed.total.seconds:.3g}"),
)


def _limit(plan: Plan, name: Name) -> str:
    return percent(plan.crossovers[name].transfer) if name in plan.crossovers else "–"


def aligned(lines: list[list[str]]) -> list[str]:
    """Lines of cells in columns: the first to the left, the others to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]


# ---- the paper


def compare_with_paper(assumptions: Assumptions) -> dict[str, Any]:
    """The paper's table and rates, its formula's values, and this implementation's for the same parameters."""
    return {
        "table": [
            {
                "rows": cell.rows,
                "fraction": cell.fraction,
                "printed_mib": cell.printed,
                "formula_mib": cell.computed(),
                "trivial_mib": cell.trivial,
                "ours_mib": {
                    security: _upload(cell.rows, round(cell.fraction * cell.rows), security)
                    for security in ("semi-honest", "verified")
                },
            }
            for cell in TABLE
        ],
        "rates": [
            {
                "variant": rate.what,
                "printed": rate.printed,
                "formula": rate.formula.break_even,
                "parameters": asdict(rate.formula),
                "ours": {
                    security: crossover(
                        Name(rate.what),
                        _paper_question(PAPER_ROWS, PAPER_ROWS // 100, rate.formula.width, security),
                        assumptions,
                    ).upload
                    for security in ("semi-honest", "verified")
                },
            }
            for rate in RATES
        ],
    }


def _paper_question(rows: int, select: int, width: int, security: Any) -> Question:
    """The paper's parameters; the union, if used, is as small as possible: all clients select the same rows."""
    return question_of(
        rows=rows,
        select=select,
        width=width,
        bits=PAPER_BITS,
        clients=2,
        rounds=1,
        security=security,
        union=select,
        dtype="f4",
    )


def _upload(rows: int, select: int, security: str) -> float:
    variant = build(Name.BASIC, _paper_question(rows, select, 1, security))
    phases = variant.first.phases
    return (framed(phases["retrieve"].up) + framed(phases["submit"].up)) / 2**20


def paper_text(comparison: dict[str, Any]) -> str:
    """The comparison as text."""
    table = [["m", "k/m", "paper", "its formula", "ours, semi-honest", "ours, verified", "trivial"]]
    table += [_table_line(cell) for cell in comparison["table"]]
    rates = [["k/m at which upload equals trivial's", "paper", "its formula", "ours, semi-honest", "ours, verified"]]
    rates += [
        [rate["variant"], *map(percent, (rate["printed"], rate["formula"], *rate["ours"].values()))]
        for rate in comparison["rates"]
    ]
    return "\n".join(
        [
            "The paper's table basic-comm: upload of one client, MiB (l = 128; ε = 1.25, depth 9 in its formula)",
            *aligned(table),
            "",
            *aligned(rates),
            "union, ours: with the cost of finding the union, at its best (all clients select the same rows).",
        ]
    )


def _table_line(cell: dict[str, Any]) -> list[str]:
    printed = cell["printed_mib"]
    return [
        f"{cell['rows']:,}",
        percent(cell["fraction"]),
        f"{printed:g}",
        _beside(cell["formula_mib"], printed),
        *(_beside(ours, printed) for ours in cell["ours_mib"].values()),
        f"{cell['trivial_mib']:.3f}",
    ]


def _beside(value: float, printed: float) -> str:
    return f"{value:.4f} ({100 * (value / printed - 1):+.0f} %)"


# ---- the picture


def draw(question: Question, path: Path) -> None:
    """Draw the bytes that a client sends in all rounds over k/m, for every variant.

    Raises:
        MisuseError: matplotlib is missing, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MisuseError("plot: matplotlib is missing; install fsl-async with its extra `plot`") from error
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="k/m", ylabel="bytes sent by a client, all rounds", xscale="log", yscale="log")
    selections = sorted({max(1, round(question.rows ** (index / (POINTS - 1)))) for index in range(POINTS)})
    for name in names_of(question):
        sent = [_sent(name, question, select) for select in selections]
        axes.plot([select / question.rows for select in selections], sent, label=name.value)
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise MisuseError(f"plot: {path} cannot be written: {error}") from error


def _sent(name: Name, question: Question, select: int) -> int:
    union = min(question.rows, max(select, select * question.union // question.select))
    variant = build(name, replace(question, select=select, union=union, clients=2))
    return framed(variant.first.traffic.up) + (question.rounds - 1) * framed(variant.later.traffic.up)
