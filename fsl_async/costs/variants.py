"""The ways to run one and the same learning task, each with its costs: what the planner compares; and rounds alone.

    basic            single weights are rows, as in the paper's basic protocol: retrieve, then update on the same trees
    mega-element     rows of `width` weights move as one element
    union            a private set union first, then the round over the union: alignment="union"
    epochs           trees once, in the first round; hints alone in the later ones: selection="fixed"
    union, epochs    both: one union and one set of trees for all rounds
    trivial          plain two-server sharing of the whole model, downloaded whole: Dense blocks

Rules: a variant is built from a real `Task`, so its sizes are those of the messages as the parties send them. Only the
length of a union's list depends on the rows in it; its expected length is used, and the variant is marked
(`exact=False`).

A round may run one protocol alone. A retrieval alone moves trees up and rows down; its trivial protocol is to download
the sparse blocks whole. A union alone moves trees and 64-bit hints up, and the packed union down; its trivial protocol
is plain two-server sharing of a 64-bit number for every row.

Source: paper §"Basic Protocols" (PSR) and §"Optimisations" (PSU), table "A summary of optimisation techniques"; design
§6, §7.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Literal

from msgspec.structs import replace as replaced

from fsl_async.bin_count import bins_of_round
from fsl_async.blocks import LARGEST_ROWS
from fsl_async.config import RoundConfig
from fsl_async.costs import message_sizes as costs
from fsl_async.costs.message_sizes import Setting, Shape, Traffic, Work
from fsl_async.errors import MisuseError
from fsl_async.ring import Ring
from fsl_async.task import LARGEST_CLIENTS, Dense, Sparse, Task
from fsl_async.union import UnionBlock
from fsl_async.wire.messages import Closing, Conclusion
from fsl_async.wire.public_part import Trees

BLOCK = "rows"
BARE = {"privacy": None, "bound": None, "bound_proof": "exact", "largest_weight": None}
"""Settings of a task without a bound and noise."""

STEPS_OF_A_ROUND = 8
"""Messages of the servers that wait for each other: two of the toss, one forwarded, five from roster to conclusion."""

STEPS_OF_RETRIEVALS = 5
"""The same of a round that only serves retrievals: two of the toss, one forwarded, two that end the round."""


class Name(Enum):
    """The variants."""

    BASIC = "basic"
    MEGA = "mega-element"
    UNION = "union"
    EPOCHS = "epochs"
    BOTH = "union, epochs"
    TRIVIAL = "trivial"


@dataclass(frozen=True)
class Question:
    """What is to be planned: one sparse block, alone or in a task with others.

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
        statement_bytes: the statement that a client is given at the end of a round, without a union.
        given: the task that the block is part of, if it is; its other blocks are included in the costs.
        block: the block's name.
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
    statement_bytes: int = 0
    given: Task | None = None
    block: str = BLOCK

    def __post_init__(self) -> None:
        if not 2 <= self.clients <= LARGEST_CLIENTS:
            raise MisuseError(f"clients: from 2 to {LARGEST_CLIENTS} expected, got {self.clients}")
        self.task()  # which checks the rest
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
        return Setting(clients=names, dtype=self.dtype, number=number, statement_bytes=self.statement_bytes)

    @property
    def asked(self) -> Task:
        """The task as it was asked about."""
        return self.task(selection="", alignment="")

    def task(
        self,
        selection: Literal["adaptive", "fixed", ""] = "adaptive",
        alignment: Literal["all", "union", ""] = "all",
    ) -> Task:
        """The task with the sparse block in this shape; empty settings are those that it was asked about with."""
        shape = {"rows": self.rows, "select": self.select, "width": self.width}
        given = self.given or Task(
            name="plan",
            blocks=(Sparse(self.block, **shape),),
            ring=Ring(self.bits),
            security=self.security,
            min_clients=2,
            max_clients=self.clients,
        )
        blocks = tuple(
            replaced(block, **shape) if isinstance(block, Sparse) and block.name == self.block else block
            for block in given.blocks
        )
        if (aligned := alignment or given.alignment) == "union":  # with which no task has these
            given = replaced(given, privacy=None, min_contributors=None, lying_clients=1)
        return replaced(given, blocks=blocks, selection=selection or given.selection, alignment=aligned)

    @property
    def without_bound(self) -> Question:
        """The same question about a task without a bound and noise, which other shapes might not have."""
        return self if self.given is None else replace(self, given=replaced(self.given, **BARE))

    def unions(self, task: Task) -> tuple[UnionBlock, ...]:
        """The unions of a task's sparse blocks: of the others, all that clients can select."""
        return tuple(
            UnionBlock(
                block.name,
                min(block.rows, self.union if block.name == self.block else self.clients * block.select),
                costs.DIGEST,
            )
            for _, block in task.sparse_blocks()
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
        plain: the blocks that move plainly, without trees, once the union is known.
    """

    name: Name
    width: int
    shapes: tuple[Shape, ...]
    first: RoundCosts
    later: RoundCosts
    exact: bool = True
    plain: tuple[str, ...] = ()


def names_of(question: Question) -> list[Name]:
    """The variants that a question admits.

    With rows of one weight basic and mega-elements are the same; single weights may be more rows than a block has; and
    a task that is there has the rows that it has.
    """
    left_out = {
        Name.MEGA: question.width == 1,
        Name.BASIC: question.rows * question.width > LARGEST_ROWS
        or (question.given is not None and question.width > 1),
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


def _one_tree(name: Name, question: Question, selection: Literal["adaptive", "fixed"] = "adaptive") -> Variant:
    """Trees of every round, or of a session, whose later rounds bring hints alone."""
    setting = question.setting()
    config = costs.specimen_config(question.task(selection), setting)
    later = _round(config, setting, session=selection == "fixed")
    return Variant(name, question.width, _shapes(config.shape), _round(config, setting), later)


def _round(config: RoundConfig, setting: Setting, *, session: bool = False) -> RoundCosts:
    """Retrieve, then update, on trees of this round or of the session."""
    task = config.shape
    own = Trees.OWN if task.updates == "any" else Trees.RETRIEVAL
    trees = Trees.SESSION if session else own
    planted = Work() if session else costs.tree_work(task)
    return RoundCosts(
        phases={
            "enter": costs.entering(config, known=setting.number > 1),
            "retrieve": costs.fetching(task, setting, recalled=session),
            "submit": costs.submission(task, trees, setting),
            "outcome": costs.outcome(setting),
        },
        link=costs.opening_messages(task, setting) + costs.round_messages(task, setting),
        work=planted + costs.retrieval_work(task, setting) + costs.submission_work(task, trees),
        folded=costs.folded_bytes(task),
        laid_out=costs.laid_out_rows(task),
    )


def _shapes(task: Task) -> tuple[Shape, ...]:
    return tuple(costs.shape_of(task, block) for _, block in task.sparse_blocks())


# ---- private set union


def _union(question: Question) -> Variant:
    """Every round twice: trees over all rows find the union, then the union's rows are retrieved and updated.

    Rows change from round to round here, as with `basic`: a client cannot plant over a union that it does not know yet.
    """
    aligned = _aligned(question, "adaptive")
    every = _after(_uniting_round(aligned, question.setting()), _main_round(question, aligned, listed=True))
    planted = _shapes(_uniting(aligned).shape) + _shapes(aligned.shape)
    return Variant(Name.UNION, question.width, planted, every, every, exact=False, plain=_plain_of(aligned))


def _union_and_epochs(question: Question) -> Variant:
    """The union once; the trees that found it serve all rounds, which are hints, or plain rows where they are few."""
    aligned = _aligned(question, "fixed")
    finding = _uniting_round(aligned, question.setting())
    first = _after(finding, _main_round(question, aligned, listed=True, session=True))
    later = _main_round(question, aligned, listed=False, session=True)
    planted = _shapes(_uniting(aligned).shape)
    return Variant(Name.BOTH, question.width, planted, first, later, exact=False, plain=_plain_of(aligned))


def _aligned(question: Question, selection: Literal["adaptive", "fixed"]) -> RoundConfig:
    """A main round that is aligned on the unions that a union round has found."""
    task = question.task(selection, alignment="union")
    return costs.specimen_config(task, question.setting(), union=question.unions(task))


def _plain_of(aligned: RoundConfig) -> tuple[str, ...]:
    return tuple(entry.name for entry in aligned.plain)


def _main_round(question: Question, aligned: RoundConfig, *, listed: bool, session: bool = False) -> RoundCosts:
    """A round aligned on a union; a client that has its list from a round before does not ask for it."""
    main = _round(aligned, question.setting(), session=session)
    lists = _lists(aligned.task, aligned.union) if listed else Traffic()
    return replace(main, phases=main.phases | {"enter": costs.entering(aligned, known=True), "list": lists})


def _lists(task: Task, found: tuple[UnionBlock, ...]) -> Traffic:
    """A client downloads the unions of a task's sparse blocks."""
    pairs = zip(task.sparse_blocks(), found, strict=True)
    lists = (costs.download(block.name, union_bytes(block.rows, one.size), union=True) for (_, block), one in pairs)
    return sum(lists, Traffic())


def _uniting(aligned: RoundConfig) -> RoundConfig:
    """The round that finds the unions that another one is aligned on."""
    bins = bins_of_round(aligned.task, (), aligned.model)
    return replaced(aligned, protocol="psu", bins=bins, union=(), plain=())


def _uniting_round(aligned: RoundConfig, setting: Setting) -> RoundCosts:
    """The costs of that round: a submission of 64-bit numbers on trees of its own."""
    config = _uniting(aligned)
    submitted = costs.submission(config.shape, Trees.OWN, setting)
    united = costs.entering(config, known=False) + submitted + costs.outcome(setting, union=aligned.union)
    return _finding(config, setting, {"unite": united})


def _finding(config: RoundConfig, setting: Setting, phases: dict[str, Traffic]) -> RoundCosts:
    """A round that finds unions, in which a client's messages are these."""
    shape = config.shape
    return RoundCosts(
        phases=phases,
        link=costs.opening_messages(shape, setting) + costs.round_messages(shape, setting),
        work=costs.tree_work(shape) + costs.submission_work(shape, Trees.OWN),
        folded=costs.folded_bytes(shape),
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
    """Every weight is shared whole; nothing is proved of it, counted or noised."""
    sparse = question.task()
    blocks = (
        _dense_blocks(block.name, block.weights) if isinstance(block, Sparse) else (block,) for block in sparse.blocks
    )
    plain = replaced(sparse, **BARE, min_contributors=None, lying_clients=1)
    task = replaced(plain, blocks=tuple(itertools.chain.from_iterable(blocks)))
    every = _round(costs.specimen_config(task, question.setting()), question.setting())
    return Variant(Name.TRIVIAL, question.width, (), every, every)


def _dense_blocks(name: str, weights: int) -> tuple[Dense, ...]:
    """So many weights in as few dense blocks as can hold them."""
    count = -(-weights // LARGEST_ROWS)
    names = [name] if count == 1 else [f"{name[:60]}-{number}" for number in range(count)]
    return tuple(
        Dense(name, size=min(LARGEST_ROWS, weights - number * LARGEST_ROWS)) for number, name in enumerate(names)
    )


_BUILDERS: dict[Name, Callable[[Question], Variant]] = {
    Name.BASIC: _basic,
    Name.MEGA: partial(_one_tree, Name.MEGA),
    Name.UNION: _union,
    Name.EPOCHS: partial(_one_tree, Name.EPOCHS, selection="fixed"),
    Name.BOTH: _union_and_epochs,
    Name.TRIVIAL: _trivial,
}


# ---- one protocol alone


def retrieval_round(task: Task, setting: Setting) -> RoundCosts:
    """A round in which every client retrieves once, dense blocks included; more retrievals repeat that phase."""
    config = costs.specimen_config(task, setting)
    ends = (costs.message_bytes(Closing(costs.DIGEST)), costs.message_bytes(Conclusion(costs.DIGEST, costs.DIGEST)))
    return RoundCosts(
        phases={
            "enter": costs.entering(config, known=False),
            "retrieve": costs.fetching(config.shape, setting),
        },
        link=costs.toss_messages(setting.number) + ends * 2,
        work=costs.tree_work(config.shape) + costs.retrieval_work(config.shape, setting),
        folded=0,
        laid_out=costs.laid_out_rows(config.shape),
        steps=STEPS_OF_RETRIEVALS,
    )


def union_round(task: Task, setting: Setting, found: tuple[UnionBlock, ...]) -> RoundCosts:
    """A round that finds the union, and each client reads it."""
    config = costs.specimen_config(task, setting)
    phases = {
        "enter": costs.entering(config, known=setting.number > 1),
        "unite": costs.submission(config.shape, Trees.OWN, setting),
        "outcome": costs.outcome(setting, union=found),
        "union": _lists(task, found),
    }
    return _finding(config, setting, phases)


def union_trivially(task: Task, setting: Setting) -> Traffic:
    """A number for every row of every block is shared between the two servers."""
    blocks = tuple(Dense(block.name, size=block.rows) for _, block in task.sparse_blocks())
    return costs.submission(replaced(task, protocol="ssa", ring=Ring(64), blocks=blocks), Trees.OWN, setting)


# ---- crossovers


def largest_select(fits: Callable[[int], bool], stretch: Callable[[int], int], rows: int) -> int:
    """The largest selection that still fits, by bisection; 0 if none does.

    Costs grow with the selection as long as depth and positions of the trees stay, and may drop where they change: so
    each stretch of equal ones is searched, from the widest selection down.

    Args:
        fits: whether a selection of so many rows is worth it.
        stretch: of its trees; see `Shape.stretch`.
        rows: the widest selection.
    """
    stop = rows
    while stop:
        at = stretch(stop)
        start = 1 if stretch(1) <= at else _last(lambda k, at=at: stretch(k) > at, 1, stop) + 1  # type: ignore[misc]
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
