"""What a task will cost before anybody runs it, which variant to use, and up to which k/m that holds.

Bytes are exact: they come from encoding messages of the shapes that the parties send, records included (`framed`); only
the list of a union has an expected length. Seconds are estimates: counts divided by speeds, one step after the other,
without overlap. docs/planner.md explains each figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Literal

import msgspec

from fsl_async.bin_count import planned
from fsl_async.config import MODEL_DTYPES, RoundConfig
from fsl_async.costs.message_sizes import (
    Setting,
    Shape,
    Traffic,
    fetching,
    fetching_whole,
    specimen_config,
    submission,
)
from fsl_async.costs.variants import Name, Question, RoundCosts, Variant, build, largest_select, names_of
from fsl_async.digests import DIGEST_BYTES, KEY_BYTES
from fsl_async.errors import MisuseError
from fsl_async.merkle import RosterTree
from fsl_async.privacy.utility import unlearnt
from fsl_async.task import Task
from fsl_async.wire.public_part import Trees
from parties.commands.plan.advice import SETTINGS, Advice
from parties.commands.plan.calibration import TYPICAL
from parties.commands.plan.figures import Assumptions, Crossover, Figures, Transfer
from parties.outcome import Done, RoundReport
from parties.statement import Statement
from transport.records import wire_size

Security = Literal["verified", "semi-honest"]

LARGEST_BULK = 2**32 - 1


def framed(lengths: Sequence[int]) -> int:
    """Bytes on the wire of messages of these lengths."""
    return sum(wire_size(length) for length in lengths)


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


def transfer(traffic: Traffic, assumptions: Assumptions) -> Transfer:
    """What a client's messages come to."""
    up, down = framed(traffic.up), framed(traffic.down)
    return Transfer(up, down, 8 * up / assumptions.upload + 8 * down / assumptions.download)


# ---- the plan


@dataclass(frozen=True)
class Costed:
    """A variant with its figures."""

    variant: Variant
    first: Figures
    later: Figures
    total: Figures


@dataclass(frozen=True)
class Plan:
    """A plan.

    Attributes:
        question: the question.
        assumptions: the bandwidths and speeds from which seconds are computed.
        measured: whether the speeds were measured on this machine.
        costed: every variant with its figures.
        crossovers: by variant except the trivial one, the largest selection for which it is worth it.
        asked: the variant that the task's settings select.
        use: the variant to use: the asked or the trivial one.
        verdict: one sentence: whether the task is worth it, and what to change.
        why: further sentences.
        whole: what a client sends and receives in a round if it has all blocks whole.
    """

    question: Question
    assumptions: Assumptions
    measured: bool
    costed: dict[Name, Costed]
    crossovers: dict[Name, Crossover]
    asked: Name
    use: Name
    verdict: str
    why: tuple[str, ...]
    whole: Transfer

    @property
    def worth(self) -> bool:
        """Whether the task as asked is better than the trivial protocol, and its noise leaves something to learn."""
        return self.use is not Name.TRIVIAL and not unlearnt(self.question.asked)


def make_plan(question: Question, assumptions: Assumptions, *, measured: bool = False) -> Plan:
    """Cost every variant and choose."""
    costed = {name: _costed(build(name, question), question, assumptions) for name in names_of(question)}
    crossovers: dict[Name, Crossover] = {
        name: crossover(name, question, assumptions) for name in costed if name != Name.TRIVIAL
    }
    asked = asked_variant(question)
    use = min((Name.TRIVIAL, asked), key=lambda name: costed[name].total.transfer_seconds)
    totals = {name: item.total for name, item in costed.items()}
    plainly = frozenset(name for name, item in costed.items() if question.block in item.variant.plain)
    task, setting = planned(question.asked), question.setting()
    own = submission(task, Trees.OWN, setting)
    retrieved = own if task.updates == "any" else submission(task, Trees.RETRIEVAL, setting)
    rows = transfer(fetching(task, setting) + retrieved, assumptions)
    whole = transfer(fetching_whole(task, setting) + own, assumptions)
    advice = Advice(question, assumptions, totals, crossovers, asked, plainly, rows, whole)
    return Plan(
        question,
        assumptions,
        measured,
        costed,
        crossovers,
        asked,
        use,
        advice.verdict(),
        advice.advice(crossover),
        whole,
    )


def asked_variant(question: Question) -> Name:
    """The variant that a task's settings select."""
    match question.asked.selection, question.asked.alignment:
        case "fixed", "union":
            return Name.BOTH
        case "fixed", _:
            return Name.EPOCHS
        case _, "union":
            return Name.UNION
        case _:
            return Name.MEGA if question.width > 1 else Name.BASIC


def _costed(variant: Variant, question: Question, assumptions: Assumptions) -> Costed:
    first = figures(variant.first, question.clients, assumptions)
    later = figures(variant.later, question.clients, assumptions)
    rounds = question.rounds - 1
    total = {name: getattr(first, name) + rounds * getattr(later, name) for name in Figures.__dataclass_fields__}
    return Costed(variant, first, later, Figures(**total))


def crossover(name: Name, question: Question, assumptions: Assumptions) -> Crossover:
    """The largest selection for which a variant is worth it, found by bisection.

    The union grows with the selection: it stays the same multiple of it, up to all rows.
    """

    @cache
    def at(select: int) -> Variant:
        union = min(question.rows, max(select, select * question.union // question.select))
        # Two clients: what one of them sends and receives does not depend on how many there are.
        return build(name, replace(question.without_bound, select=select, union=union, clients=2))

    def largest(measure: Literal["up", "transfer_seconds"]) -> float:
        def cost(variant: Variant) -> float:
            return float(getattr(_costed(variant, question, assumptions).total, measure))

        most = cost(build(Name.TRIVIAL, replace(question, clients=2)))
        select = largest_select(
            lambda select: cost(at(select)) <= most, lambda select: at(select).shapes[0].stretch, question.rows
        )
        return select / question.rows

    return Crossover(upload=largest("up"), transfer=largest("transfer_seconds"))


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
    selection: Literal["adaptive", "fixed"] = "adaptive",
    updates: Literal["retrieved", "any"] = "retrieved",
    alignment: Literal["all", "union"] = "all",
) -> Question:
    """The question that the command's options describe: numbers as of `Question`, and settings of its task.

    A union of 0 rows stands for the maximum, at which no two clients share a row.

    Raises:
        MisuseError: a number is out of range.
    """
    check_dtype(dtype)
    largest = min(rows, clients * select)
    question = Question(rows, select, width, bits, clients, rounds, security, union or largest, dtype)
    settings = {"selection": selection, "updates": updates, "alignment": alignment}
    if settings != {"selection": "adaptive", "updates": "retrieved", "alignment": "all"}:
        question = replace(question, given=msgspec.structs.replace(question.asked, **settings))
    return _reported(question)


def question_about(task: Task, *, clients: int, rounds: int, union: int, dtype: str) -> Question:
    """The question about a given task: its largest sparse block is planned, and the others are costed along with it.

    Args:
        task: the task.
        clients: the number of clients; 0 for 100, or as many as the task admits.
        rounds: the number of rounds.
        union: the rows of that block's union; 0 for the maximum.
        dtype: the model's dtype.

    Raises:
        MisuseError: a number is out of range, or the task has no sparse block.
    """
    check_dtype(dtype)
    if not any(task.sparse_blocks()):
        raise MisuseError(
            f"task {task.name!r} has only dense blocks: it is the trivial protocol, and there is nothing to choose"
        )
    clients = clients or max(task.quorum, min(100, task.max_clients))
    if clients > task.max_clients:
        raise MisuseError(f"clients: the task admits at most max_clients={task.max_clients}, got {clients}")
    block = max((block for _, block in task.sparse_blocks()), key=lambda block: block.weights)
    return _reported(
        Question(
            rows=block.rows,
            select=block.select,
            width=block.width,
            bits=task.ring.bits,
            clients=clients,
            rounds=rounds,
            security=task.security,
            union=union or min(block.rows, clients * block.select),
            dtype=dtype,
            given=task,
            block=block.name,
        )
    )


def check_dtype(dtype: str) -> None:
    """Refuse what is no model's data type.

    Raises:
        MisuseError: it is none.
    """
    if dtype not in MODEL_DTYPES:
        raise MisuseError(f"dtype: one of {', '.join(MODEL_DTYPES)} expected, got {dtype!r}")


def _reported(question: Question) -> Question:
    setting = question.setting()
    config = specimen_config(question.task(), setting)
    return replace(question, statement_bytes=statement_bytes(setting, config))


def statement_bytes(setting: Setting, config: RoundConfig) -> int:
    """The bytes of a client's statement of a round in which all clients were counted, and all rows opened."""
    first, *_ = setting.clients
    counts = config.task.min_contributors is not None
    opened = {block.name: bytes(1 + -(-block.rows // 8)) for _, block in config.task.sparse_blocks() if counts}
    report = RoundReport(
        round_id=bytes(DIGEST_BYTES),
        number=setting.number,
        ending=Done(),
        clients=dict.fromkeys(setting.clients, bytes(DIGEST_BYTES)),
        excluded={},
        model=config.model,
        opened_rows=opened,
    )
    named = config.task.participants == "names"
    tree = RosterTree(report.clients, bytes(KEY_BYTES))
    return len(Statement.of(report, first, tree, named=named).canonical())


def result_of(plan: Plan) -> dict[str, Any]:
    """The plan as one JSON object."""
    question = {field: value for field, value in asdict(plan.question).items() if field != "given"}
    return {
        "recommendation": {
            "verdict": plan.verdict,
            "worth": plan.worth,
            "asked": plan.asked.value,
            "use": plan.use.value,
            "why": list(plan.why),
        },
        "question": question,
        "task": msgspec.to_builtins(plan.question.asked),
        "assumptions": asdict(plan.assumptions) | {"measured": plan.measured},
        "variants": [_variant_of(costed) for costed in plan.costed.values()],
        "crossovers": {name.value: asdict(limit) for name, limit in plan.crossovers.items()},
        "whole": asdict(plan.whole),
    }


def _variant_of(costed: Costed) -> dict[str, Any]:
    variant = costed.variant
    return {
        "name": variant.name.value,
        "settings": SETTINGS[variant.name],
        "width": variant.width,
        "exact": variant.exact,
        "plain": list(variant.plain),
        "sendable": max(variant.first.traffic.up + variant.first.traffic.down) <= LARGEST_BULK,
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
