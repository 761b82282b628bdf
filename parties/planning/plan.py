"""`fsl-async plan`: what a task will cost before anybody runs it, which variant to use, and up to which k/m that holds.

Bytes are exact: they come from encoding messages of the shapes that the parties send, records included (`framed`); only
the list of a union has an expected length. Seconds are estimates: counts divided by speeds, one thing after the other,
with nothing overlapped. docs/planner.md tells what is in each figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Literal

from fsl_async.config import MODEL_DTYPES
from fsl_async.costs import Setting, Shape, specimen_config
from fsl_async.digests import DIGEST_BYTES
from fsl_async.errors import MisuseError
from fsl_async.variants import Name, Question, RoundCosts, Variant, build, largest_select, names_of
from parties.outcome import RoundReport
from parties.planning.calibration import TYPICAL, Speeds
from transport import wire_size

__all__ = [
    "Assumptions",
    "Crossover",
    "Figures",
    "Plan",
    "Security",
    "crossover",
    "figures",
    "framed",
    "make_plan",
    "question_of",
    "report_bytes",
    "result_of",
]

Security = Literal["verified", "semi-honest"]

LARGEST_BULK = 2**32 - 1
GROUP = 16
"""Weights per row of the mega-elements that are suggested where single weights do not pay."""


def framed(lengths: Sequence[int]) -> int:
    """Bytes on the wire of messages of these lengths, without the key changes: 19 bytes for every 1,023 records."""
    return sum(wire_size(length) for length in lengths)


@dataclass(frozen=True)
class Assumptions:
    """What turns counts into seconds.

    Attributes:
        upload: a client's, in bits per second.
        download: likewise.
        link: between the servers, each way.
        latency: of that link, one way, in seconds.
        cores: that each server computes on.
        speeds: of one core, client's and server's alike.
    """

    upload: float
    download: float
    link: float
    latency: float
    cores: int
    speeds: Speeds

    def __post_init__(self) -> None:
        rates = (self.upload, self.download, self.link, self.cores)
        if not (all(rate > 0 for rate in rates) and self.latency >= 0):
            raise MisuseError("plan: bandwidths and cores must be positive, the latency not negative")


@dataclass(frozen=True)
class Figures:
    """What one round costs, or several.

    Attributes:
        up: bytes that one client sends.
        down: bytes that it receives.
        link: bytes that both servers send each other, for all clients together.
        client_blocks: AES blocks by one client.
        server_blocks: AES blocks by each server for one client.
        transfer_seconds: one client's transfers.
        client_seconds: one client's computation.
        server_seconds: a server's computation for all clients.
        link_seconds: transfers and waiting between the servers.
    """

    up: int
    down: int
    link: int
    client_blocks: int
    server_blocks: int
    transfer_seconds: float
    client_seconds: float
    server_seconds: float
    link_seconds: float

    @property
    def seconds(self) -> float:
        """All of it, one after the other."""
        return self.transfer_seconds + self.client_seconds + self.server_seconds + self.link_seconds


def figures(round_costs: RoundCosts, clients: int, assumptions: Assumptions) -> Figures:
    """The figures of one round."""
    traffic, work, speeds = round_costs.traffic, round_costs.work, assumptions.speeds
    up, down = framed(traffic.up), framed(traffic.down)
    link = framed(round_costs.link) + clients * framed(traffic.link)
    # Narrow rows cost a server their number, wide ones their bytes.
    reading = max(work.read_rows / speeds.read_rows, work.read_bytes / speeds.read_bytes)
    per_client = work.server / speeds.server + reading
    per_round = round_costs.folded / speeds.fold + round_costs.laid_out / speeds.layout
    return Figures(
        up=up,
        down=down,
        link=link,
        client_blocks=work.client,
        server_blocks=work.server,
        transfer_seconds=8 * up / assumptions.upload + 8 * down / assumptions.download,
        client_seconds=work.client / speeds.client,
        server_seconds=(clients * per_client + per_round) / assumptions.cores,
        link_seconds=8 * link / 2 / assumptions.link + round_costs.steps * assumptions.latency,
    )


def _over_all(first: Figures, later: Figures, rounds: int) -> Figures:
    names = Figures.__dataclass_fields__
    return Figures(**{name: getattr(first, name) + (rounds - 1) * getattr(later, name) for name in names})


# ---- the plan


@dataclass(frozen=True)
class Crossover:
    """Up to which k/m a variant costs a client no more than the trivial one, over all rounds; 0 where it never does.

    Attributes:
        upload: counting bytes sent.
        transfer: counting the seconds that its transfers take, both ways.
    """

    upload: float
    transfer: float


@dataclass(frozen=True)
class Costed:
    """A variant with its figures."""

    variant: Variant
    first: Figures
    later: Figures
    total: Figures


@dataclass(frozen=True)
class Plan:
    """All that the planner has to say.

    Attributes:
        question: what was asked.
        assumptions: what the seconds rest on.
        measured: whether the speeds were measured here.
        costed: every variant.
        crossovers: by variant, all but the trivial one.
        use: the variant to use.
        why: sentences.
    """

    question: Question
    assumptions: Assumptions
    measured: bool
    costed: dict[Name, Costed]
    crossovers: dict[Name, Crossover]
    use: Name
    why: tuple[str, ...]


def make_plan(question: Question, assumptions: Assumptions, *, measured: bool = False) -> Plan:
    """Cost every variant and choose."""
    costed = {name: _costed(build(name, question), question, assumptions) for name in names_of(question)}
    crossovers: dict[Name, Crossover] = {
        name: crossover(name, question, assumptions) for name in costed if name != Name.TRIVIAL
    }
    # Only what needs nothing of the task: epochs need rows that stay, the union a leak that is agreed to.
    candidates = [name for name in (Name.TRIVIAL, Name.MEGA, Name.BASIC) if name in costed]
    use = min(candidates, key=lambda name: costed[name].total.transfer_seconds)
    why = (_why(use, costed, crossovers, question), *_further(use, costed, question, assumptions))
    return Plan(question, assumptions, measured, costed, crossovers, use, why)


def _costed(variant: Variant, question: Question, assumptions: Assumptions) -> Costed:
    first = figures(variant.first, question.clients, assumptions)
    later = figures(variant.later, question.clients, assumptions)
    return Costed(variant, first, later, _over_all(first, later, question.rounds))


def crossover(name: Name, question: Question, assumptions: Assumptions) -> Crossover:
    """Where a variant stops to be worth it, by bisection over the rows that a client selects.

    The union grows along: it stays the same multiple of the selection, up to all rows.
    """

    @cache
    def at(select: int) -> Variant:
        union = min(question.rows, max(select, select * question.union // question.select))
        # Two clients: what one of them sends and receives does not depend on how many there are.
        return build(name, replace(question, select=select, union=union, clients=2))

    def largest(measure: Literal["up", "transfer_seconds"]) -> float:
        def cost(variant: Variant) -> float:
            return float(getattr(_costed(variant, question, assumptions).total, measure))

        most = cost(build(Name.TRIVIAL, replace(question, clients=2)))
        select = largest_select(
            lambda select: cost(at(select)) <= most, lambda select: at(select).shapes[0].depth, question.rows
        )
        return select / question.rows

    return Crossover(upload=largest("up"), transfer=largest("transfer_seconds"))


# ---- which to use, and why


def _why(use: Name, costed: dict[Name, Costed], crossovers: dict[Name, Crossover], question: Question) -> str:
    trivial = costed[Name.TRIVIAL].total
    share = f"k/m = {percent(question.select / question.rows)}"
    rival = use if use is not Name.TRIVIAL else (Name.MEGA if Name.MEGA in costed else Name.BASIC)
    limit = crossovers[rival]
    bounds = (
        f"{rival.value} saves a client's time up to k/m = {percent(limit.transfer)}, and its upload alone up to "
        f"{percent(limit.upload)}"
    )
    if use is Name.TRIVIAL:
        return f"Use trivial: at {share} the trees weigh more than the model itself; {bounds}."
    total = costed[use].total
    return (
        f"Use {use.value}: at {share} a client sends {size(total.up)} and receives {size(total.down)}, with trivial "
        f"{size(trivial.up)} and {size(trivial.down)}; {bounds}."
    )


def _further(use: Name, costed: dict[Name, Costed], question: Question, assumptions: Assumptions) -> tuple[str, ...]:
    """What the choice would be if more were known."""
    chosen = costed[use].total
    return tuple(
        filter(
            None,
            (
                _if_grouped(use, question, assumptions),
                _if_fixed(chosen, costed[Name.EPOCHS].total, question.rounds),
                _if_union(costed, question),
            ),
        )
    )


def _if_grouped(use: Name, question: Question, assumptions: Assumptions) -> str:
    if use is not Name.TRIVIAL or question.width > 1 or question.rows < GROUP:
        return ""
    rows = -(-question.rows // GROUP)
    select = -(-question.select // GROUP)
    grouped = replace(question, rows=rows, select=select, width=GROUP, union=min(rows, max(select, question.union)))
    limit = crossover(Name.MEGA, grouped, assumptions)
    return (
        f"If weights are needed {GROUP} at a time, make rows of them (--width {GROUP}): mega-elements of that width "
        f"save time up to k/m = {percent(limit.transfer)}, and upload up to {percent(limit.upload)}."
    )


def _if_fixed(chosen: Figures, epochs: Figures, rounds: int) -> str:
    if rounds == 1 or epochs.transfer_seconds >= chosen.transfer_seconds:
        return ""
    return (
        f'If every client keeps its rows for all {rounds} rounds, use epochs (selection="fixed"): {size(epochs.up)} up '
        f"instead of {size(chosen.up)}."
    )


def _if_union(costed: dict[Name, Costed], question: Question) -> str:
    alone = costed[Name.MEGA if Name.MEGA in costed else Name.BASIC].total
    union = costed[Name.UNION].total
    more = (
        f"a client sends {size(union.up)} instead of {size(alone.up)}, for finding the union takes trees over all rows"
    )
    if union.seconds >= alone.seconds:
        return f"Do not use union: {more}, and nothing else gets so much smaller that it would pay."
    return (
        f'If the union may be known to all and has {question.union:,} rows, use union (alignment="union"): '
        f"{union.seconds:.3g} s instead of {alone.seconds:.3g} s. The servers do less and send each other "
        f"{size(union.link)} instead of {size(alone.link)}, though {more}."
    )


# ---- the command


def question_of(
    *,
    rows: int,
    select: int,
    width: int,
    bits: int,
    clients: int,
    rounds: int,
    security: Security,
    union: int,
    dtype: str,
) -> Question:
    """The question in the command's words.

    Args:
        rows: m.
        select: k.
        width: τ.
        bits: l.
        clients: how many.
        rounds: how many.
        security: as a task's.
        union: rows of the union; 0 stands for the most there can be, no two clients sharing a row.
        dtype: the model's.

    Raises:
        MisuseError: a number is out of its range.
    """
    if dtype not in MODEL_DTYPES:
        raise MisuseError(f"dtype: one of {', '.join(MODEL_DTYPES)} expected, got {dtype!r}")
    largest = min(rows, clients * select)
    question = Question(rows, select, width, bits, clients, rounds, security, union or largest, dtype)
    setting = question.setting()
    model = specimen_config(question.task(rows=rows, select=select, width=width), setting).model
    return replace(question, report_bytes=report_bytes(setting, model))


def report_bytes(setting: Setting, model: Any) -> int:
    """The public account of a round in which everybody was counted."""
    report = RoundReport(
        round_id=bytes(DIGEST_BYTES),
        number=setting.number,
        aborted="",
        clients=setting.clients,
        excluded={},
        model=model,
    )
    return len(report.canonical())


def result_of(plan: Plan) -> dict[str, Any]:
    """The plan as one JSON object."""
    return {
        "question": asdict(plan.question),
        "assumptions": asdict(plan.assumptions) | {"measured": plan.measured},
        "variants": [_variant_of(costed) for costed in plan.costed.values()],
        "crossovers": {name.value: asdict(limit) for name, limit in plan.crossovers.items()},
        "recommendation": {"use": plan.use.value, "why": list(plan.why)},
    }


def _variant_of(costed: Costed) -> dict[str, Any]:
    variant = costed.variant
    return {
        "name": variant.name.value,
        "width": variant.width,
        "exact": variant.exact,
        "sendable": variant.largest_message <= LARGEST_BULK,
        "trees": [_shape_of(shape) for shape in variant.shapes],
        "phases": {
            kind: {name: {"up": framed(part.up), "down": framed(part.down)} for name, part in costs.phases.items()}
            for kind, costs in (("first_round", variant.first), ("later_rounds", variant.later))
        },
        "first_round": _figures_of(costed.first),
        "later_rounds": _figures_of(costed.later),
        "total": _figures_of(costed.total),
    }


def _shape_of(shape: Shape) -> dict[str, Any]:
    return asdict(shape) | {"log2_failure": shape.log2_failure if math.isfinite(shape.log2_failure) else None}


def _figures_of(all_figures: Figures) -> dict[str, Any]:
    return asdict(all_figures) | {"seconds": all_figures.seconds}


def typical(upload: float, download: float, link: float, latency: float, cores: int) -> Assumptions:
    """Assumptions in the command's units: megabits per second and milliseconds."""
    return Assumptions(1e6 * upload, 1e6 * download, 1e6 * link, latency / 1e3, cores, TYPICAL)


def percent(fraction: float) -> str:
    """A share, to three digits."""
    return f"{100 * fraction:.3g} %"


def size(count: float) -> str:
    """Bytes for people."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:.0f} B"
