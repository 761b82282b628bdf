"""The ways to run one and the same learning task, each with its costs: what the planner compares.

    basic          single weights are rows, as in the paper's basic protocol: retrieve, then update on the same trees
    mega-element   rows of `width` weights move as one element
    union          a private set union first, then the round over the union
    epochs         trees once, in the first round; hints alone in the later ones
    trivial        plain two-server sharing of the whole model, downloaded whole

Rules: a variant is built from a real `Task`, so its sizes are those of the messages as the parties send them. Only how
long the list of a union is depends on which rows are in it; its expected length is taken, and the variant marked
(`exact=False`).

Source: paper, section on optimisations and its summary of techniques; design §6, §7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from msgspec.structs import replace as replaced

from fsl_async import costs
from fsl_async.alignment import UnionBlock, union_task
from fsl_async.config import RoundConfig
from fsl_async.costs import Setting, Shape, Traffic, Work
from fsl_async.errors import MisuseError
from fsl_async.public_part import Trees
from fsl_async.ring import Ring
from fsl_async.task import LARGEST_CLIENTS, LARGEST_ROWS, Dense, Sparse, Task

__all__ = ["Name", "Question", "RoundCosts", "Variant", "build", "largest_select", "names_of", "union_bytes"]

BLOCK = "rows"
STEPS_OF_A_ROUND = 8
"""Messages of the servers that wait for each other: two of the toss, one forwarded, five from roster to conclusion."""


class Name(Enum):
    """The variants."""

    BASIC = "basic"
    MEGA = "mega-element"
    UNION = "union"
    EPOCHS = "epochs"
    TRIVIAL = "trivial"


@dataclass(frozen=True)
class Question:
    """What is to be planned.

    Attributes:
        rows: m.
        select: k, at most `rows`.
        width: τ, weights per row.
        bits: l, bits of a ring element.
        clients: how many take part in a round.
        rounds: how many rounds there are.
        security: as a task's.
        union: how many rows all clients of a round select together.
        dtype: the model's.
        report_bytes: the public account of a round, as every client is given it.
    """

    rows: int
    select: int
    width: int
    bits: int
    clients: int
    rounds: int
    security: Literal["verified", "semi-honest"]
    union: int
    dtype: str = "f4"
    report_bytes: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.clients <= LARGEST_CLIENTS:
            raise MisuseError(f"clients: from 2 to {LARGEST_CLIENTS} expected, got {self.clients}")
        self.task(rows=self.rows, select=self.select, width=self.width)  # which checks the rest
        if not self.select <= self.union <= self.rows:
            raise MisuseError(
                f"union: from select={self.select} to rows={self.rows} rows expected, got {self.union}; "
                "no union is smaller than what one client selects"
            )
        if self.rounds < 1:
            raise MisuseError(f"rounds: at least 1 expected, got {self.rounds}")

    def setting(self, number: int = 1) -> Setting:
        """The round of that number, with as many clients as asked."""
        digits = len(str(self.clients))
        names = tuple(f"client-{index:0{digits}}" for index in range(self.clients))
        return Setting(clients=names, dtype=self.dtype, number=number, report_bytes=self.report_bytes)

    def task(self, *, rows: int, select: int, width: int, selection: Literal["adaptive", "fixed"] = "adaptive") -> Task:
        """The task with one sparse block of that shape."""
        return Task(
            name="plan",
            blocks=(Sparse(BLOCK, rows=rows, select=select, width=width),),
            ring=Ring(self.bits),
            selection=selection,
            security=self.security,
            min_clients=2,
            max_clients=self.clients,
        )


@dataclass(frozen=True)
class RoundCosts:
    """One round.

    Attributes:
        phases: one client's messages, by what they are for.
        link: what the servers send each other once, beside what clients cause.
        work: what is computed on account of one client.
        folded: bytes of accumulators that each server folds to rows, once.
        laid_out: rows of the model's tables that each server lays out for retrieval, once.
        steps: messages of the servers that wait for each other.
    """

    phases: dict[str, Traffic]
    link: tuple[int, ...]
    work: Work
    folded: int
    laid_out: int
    steps: int = STEPS_OF_A_ROUND

    @property
    def traffic(self) -> Traffic:
        """All phases together."""
        return sum(self.phases.values(), Traffic())


@dataclass(frozen=True)
class Variant:
    """One way, with its costs.

    Attributes:
        name: which.
        width: weights per row.
        shapes: the trees it plants, in order; none for the trivial one.
        first: the first round.
        later: every later one.
        exact: whether the bytes are those of messages as they are sent.
    """

    name: Name
    width: int
    shapes: tuple[Shape, ...]
    first: RoundCosts
    later: RoundCosts
    exact: bool = True

    @property
    def largest_message(self) -> int:
        """The longest message that a client sends or receives, in bytes."""
        return max(self.first.traffic.up + self.first.traffic.down)


def names_of(question: Question) -> list[Name]:
    """The variants that a question admits.

    With rows of one weight basic and mega-elements are the same, and single weights may be more rows than a block has.
    """
    left_out = {
        Name.MEGA: question.width == 1,
        Name.BASIC: question.rows * question.width > LARGEST_ROWS,
    }
    return [name for name in Name if not left_out.get(name, False)]


def build(name: Name, question: Question) -> Variant:
    """One variant."""
    return _BUILDERS[name](question)


# ---- one tree for retrieval and update


def _basic(question: Question) -> Variant:
    width = question.width
    single = replace(
        question, rows=question.rows * width, select=question.select * width, union=question.union * width, width=1
    )
    return _one_tree(Name.BASIC, single)


def _mega(question: Question) -> Variant:
    return _one_tree(Name.MEGA, question)


def _one_tree(name: Name, question: Question) -> Variant:
    task = question.task(rows=question.rows, select=question.select, width=question.width)
    every = _round(task, question.setting())
    return Variant(name, question.width, _shapes(task), every, every)


def _round(task: Task, setting: Setting) -> RoundCosts:
    """Retrieve, then update what was retrieved, on trees of this round."""
    return RoundCosts(
        phases={
            "enter": costs.entering(costs.specimen_config(task, setting)),
            "retrieve": costs.fetching(task, setting),
            "submit": costs.submission(task, Trees.RETRIEVAL, setting),
            "outcome": costs.outcome(setting),
        },
        link=costs.toss_messages(setting.number) + costs.round_messages(task, setting),
        work=costs.tree_work(task) + costs.retrieval_work(task, setting) + costs.submission_work(task, Trees.RETRIEVAL),
        folded=costs.folded_bytes(task),
        laid_out=costs.laid_out_rows(task),
    )


def _shapes(task: Task) -> tuple[Shape, ...]:
    return tuple(costs.shape_of(task, block) for _, block in task.sparse_blocks())


# ---- trees of a session


def _epochs(question: Question) -> Variant:
    task = question.task(rows=question.rows, select=question.select, width=question.width, selection="fixed")
    setting = question.setting()
    first = _round(task, setting)
    later = RoundCosts(
        phases=first.phases
        | {
            "retrieve": costs.recall(task, setting),
            "submit": costs.submission(task, Trees.SESSION, setting),
        },
        link=first.link,
        work=costs.retrieval_work(task, setting) + costs.submission_work(task, Trees.SESSION),
        folded=first.folded,
        laid_out=first.laid_out,
    )
    return Variant(Name.EPOCHS, question.width, _shapes(task), first, later)


# ---- private set union


def _union(question: Question) -> Variant:
    """Every round twice: trees over all rows find the union, then new trees over the union retrieve and update.

    Rows change from round to round here, as with `basic`: a client cannot plant over a union that it does not know yet.
    """
    setting = question.setting()
    task = question.task(rows=question.rows, select=question.select, width=question.width)
    found = (UnionBlock(BLOCK, question.union, costs.DIGEST),)
    aligned = costs.specimen_config(replaced(task, alignment="union"), setting, union=found)
    main = _round(aligned.shape, setting)
    listed = costs.download(BLOCK, union_bytes(question.rows, question.union), union=True)
    main = replace(main, phases=main.phases | {"enter": costs.entering(aligned), "list": listed})
    every = _after(_union_round(aligned, found, setting), main)
    shapes = _shapes(union_task(aligned.task)) + _shapes(aligned.shape)
    return Variant(Name.UNION, question.width, shapes, every, every, exact=False)


def _union_round(aligned: RoundConfig, found: tuple[UnionBlock, ...], setting: Setting) -> RoundCosts:
    """The round that finds the union: a submission of 64-bit numbers on trees of its own."""
    config = replaced(aligned, phase="union", union=(), plain=())
    submitted = costs.submission(config.shape, Trees.OWN, setting)
    return RoundCosts(
        phases={"unite": costs.entering(config) + submitted + costs.outcome(setting, union=found)},
        link=costs.toss_messages(setting.number) + costs.round_messages(config.shape, setting),
        work=costs.tree_work(config.shape) + costs.submission_work(config.shape, Trees.OWN),
        folded=costs.folded_bytes(config.shape),
        laid_out=0,
    )


def union_bytes(rows: int, union: int) -> int:
    """Bytes of a published union: a bitmap or gaps of seven bits to a byte, whichever is smaller, and which it is.

    A gap has more than j bytes with probability (1 - union/rows)^128^j, for rows that are spread at random.
    """
    absent = 1 - union / rows
    gaps: float = union * (1 + sum(absent ** float(128**longer) for longer in range(1, 5)))
    return 1 + min(-(-rows // 8), math.ceil(gaps))


def _after(before: RoundCosts, after: RoundCosts) -> RoundCosts:
    """Two rounds as one."""
    return RoundCosts(
        phases=before.phases | after.phases,
        link=before.link + after.link,
        work=before.work + after.work,
        folded=before.folded + after.folded,
        laid_out=before.laid_out + after.laid_out,
        steps=before.steps + after.steps,
    )


# ---- the baseline


def _trivial(question: Question) -> Variant:
    sparse = question.task(rows=question.rows, select=question.select, width=question.width)
    task = replaced(sparse, blocks=_dense_blocks(question.rows * question.width))
    every = _round(task, question.setting())
    return Variant(Name.TRIVIAL, question.width, (), every, every)


def _dense_blocks(weights: int) -> tuple[Dense, ...]:
    """So many weights in as few dense blocks as can hold them."""
    count = -(-weights // LARGEST_ROWS)
    names = [BLOCK] if count == 1 else [f"{BLOCK}-{number}" for number in range(count)]
    return tuple(
        Dense(name, size=min(LARGEST_ROWS, weights - number * LARGEST_ROWS)) for number, name in enumerate(names)
    )


_BUILDERS: dict[Name, Callable[[Question], Variant]] = {
    Name.BASIC: _basic,
    Name.MEGA: _mega,
    Name.UNION: _union,
    Name.EPOCHS: _epochs,
    Name.TRIVIAL: _trivial,
}


# ---- crossovers


def largest_select(fits: Callable[[int], bool], depth: Callable[[int], int], rows: int) -> int:
    """The largest selection that still fits, by bisection; 0 if none does.

    Costs grow with the selection as long as the depth of the trees stays, and drop where it falls by one: so each
    stretch of equal depth is searched, from the widest selection down.

    Args:
        fits: whether a selection of so many rows is worth it.
        depth: the depth of its trees, which never rises with the selection.
        rows: the widest selection.
    """
    stop = rows
    while stop:
        level = depth(stop)
        start = 1 if depth(1) <= level else _last(lambda k, level=level: depth(k) > level, 1, stop) + 1  # type: ignore[misc]
        if fits(start):
            return _last(fits, start, stop)
        stop = start - 1
    return 0


def _last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The last number up to `high` for which `holds`, given that it does for `low` and turns once."""
    high += 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
