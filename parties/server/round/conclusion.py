"""What both shares of a round's sum come to when they are opened: an update that is applied, or a sum that is refused.

Rules: both servers come to the same result, because both use the same shares, clients, model and state. A refused sum
leaves the model and the state as they were, but both servers know it; so the round's report tells it apart from a round
that was aborted before anything was opened, after which the same values may be submitted again.

What a task's own rule has made of a sum is stored with the word that it was applied (see `OwnResult`): a restarted
server reads it back and does not call the function again, which might do something else this time.
In a union round, which finds the union, the model stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import msgspec

from fsl_async.config import BlockModel, RoundConfig, describe_model
from fsl_async.foreign_text import shortened
from fsl_async.merkle import blind_of
from fsl_async.model_numbers import BeyondDtypeError, with_sum
from fsl_async.protocols import ssa
from fsl_async.server.contributors import Counts
from fsl_async.server.rules import NoWeightError, OwnRuleError, average_and_step, describe_state, own_step
from fsl_async.server.sum_limits import BeyondNormsError, ExcessError
from fsl_async.server_rules import OwnRule
from fsl_async.union import UnionBlock, describe_union, pack_union
from fsl_async.wire.pieces import spans_of
from fsl_async.wire.public_part import OpenedRows
from parties.events import Warned
from parties.outcome import Aborted, Done, Model, RoundOutcome, RoundReport, SumRefused
from parties.server.evidence import Evidence, either
from parties.server.round.combining import Combining, Sums
from parties.server.round.engine import RoundStart
from parties.server.round.own_rule import OwnResult, watched
from parties.server.round.records import RoundRecords
from parties.server.round.services import RoundServices

RefusalError: TypeAlias = ExcessError | BeyondDtypeError | NoWeightError | OwnRuleError
"""Why a sum is not applied."""


@dataclass(frozen=True)
class OpenedSum:
    """What an opened sum has come to.

    Attributes:
        outcome: the sum and who is in it; without the sum where it is refused.
        submissions: the digests of the submissions that are in it, by client.
        ending: whether the sum was applied, or why it was refused.
        union: by sparse block, the union that was found, or that the round is aligned on.
        model: the model after the round.
        described: the model after the round, as configurations describe it.
        state: what the task's optimizer or own rule keeps after the round.
        state_digest: its digest.
        blind: what the list of clients is blinded with in statements.
    """

    outcome: RoundOutcome
    submissions: Mapping[str, bytes]
    ending: Done | SumRefused
    union: Model
    model: Model
    described: tuple[BlockModel, ...]
    state: Model
    state_digest: bytes
    blind: bytes = field(repr=False)

    def report(self, config: RoundConfig) -> RoundReport:
        """The public account of the round."""
        return RoundReport(
            round_id=config.round_id(),
            number=config.number,
            ending=self.ending,
            clients=dict(self.submissions),
            excluded=self.outcome.excluded,
            model=self.described,
            union=_found_union(config, self.union),
            state=self.state_digest,
            opened_rows=_packed_rows(config, self.outcome.opened_rows),
            blind=self.blind,
        )

    def refused(self, start: RoundStart, explanation: str) -> OpenedSum:
        """The same sum where it is not applied after all."""
        return replace(
            self,
            outcome=msgspec.structs.replace(self.outcome, update={}, elements={}),
            ending=SumRefused(shortened(explanation)),
            model=start.model,
            described=start.config.model,
            state=start.state,
            state_digest=start.config.state,
        )


def report_without_sum(config: RoundConfig, ending: Aborted | Done) -> RoundReport:
    """The public account of a round that was aborted, or in which nothing is submitted."""
    return RoundReport(
        round_id=config.round_id(),
        number=config.number,
        ending=ending,
        clients={},
        excluded={},
        model=config.model,
        state=config.state,
    )


def difference(config: RoundConfig, server: int, state: ssa.Differed) -> str:
    """Why nothing is applied where the task's own rule gave the servers different outcomes; equal on both."""
    first, second = (state.outcome, state.theirs) if server == 0 else (state.theirs, state.outcome)
    return (
        f"the task's own rule gave S0 the outcome {first.hex()[:16]} and S1 {second.hex()[:16]}, so nothing is applied "
        f"(the rule is {config.task.apply})"
    )


async def conclude(
    start: RoundStart,
    records: RoundRecords,
    services: RoundServices,
    effect: ssa.Apply,
    rows: OpenedRows,
    contributors: Mapping[str, Counts],
) -> OpenedSum:
    """Combine both shares, which are of these rows, and apply the sum or refuse it.

    `contributors` has how many clients each row's sum is of, where the task takes the mean of each row.

    A sum that is more than its clients can have contributed is evidence, too.

    Raises:
        StorageError: a share is not stored, or the evidence could not be.
    """
    made = await OwnResult.read(records.store, records.prefix) if start.config.task.rule == "own" else None
    apply = partial(apply_sum, start, services.rule, contributors) if made is None else partial(_made_before, made)
    opened_sum = await _combined(start, records, services, effect, rows)
    work = partial(services.lane.run, partial(_applied, start, apply, len(effect.counted), opened_sum))
    calls_rule = services.rule is not None and made is None
    done = await (watched(work, start.config, services.observe) if calls_rule else work())
    sums, result, described, state_digest, error = done
    if isinstance(error, ExcessError):
        await services.evidence.keep(_excess(start, effect, error))
    if isinstance(error, OwnRuleError) and error.__cause__ is not None:
        services.observe(Warned(about="apply", explanation=_cause(error)))
    outcome = RoundOutcome(
        number=start.config.number,
        clients=tuple(effect.counted),
        excluded=dict(effect.excluded),
        update=sums.update,
        elements=sums.elements,
        union=dict(sums.union),
        opened_rows=dict(rows),
    )
    blind = blind_of(start.proof_key, start.config.round_id())
    model, state = result.model, result.state
    opened = OpenedSum(outcome, effect.counted, Done(), sums.union, model, described, state, state_digest, blind)
    return opened if error is None else opened.refused(start, str(error))


def _found_union(config: RoundConfig, union: Model) -> tuple[UnionBlock, ...]:
    """The union that a union round has found, as configurations and outcomes describe it; empty in a main round."""
    if config.protocol == "ssa":
        return ()
    return tuple(describe_union(block.name, union[block.name], block.rows) for _, block in config.task.sparse_blocks())


def _packed_rows(config: RoundConfig, opened: Model) -> dict[str, bytes]:
    """The opened rows as reports have them; empty where contributors are not counted."""
    blocks = {block.name: block.rows for _, block in config.task.sparse_blocks()}
    return {name: pack_union(rows, blocks[name]) for name, rows in opened.items()}


async def _combined(
    start: RoundStart, records: RoundRecords, services: RoundServices, effect: ssa.Apply, rows: OpenedRows
) -> Combining:
    """Both shares added, a piece of each at a time in memory."""
    shares, combining = records.shares, Combining(start, rows, len(effect.counted))
    ours, theirs = [await shares.pieces(name) for name in (effect.share, effect.peer_share)]
    for span, *names in zip(spans_of(start.config.shape, rows), ours, theirs, strict=True):
        pieces = [await shares.piece(name) for name in names]
        await services.lane.run(partial(combining.add, span, *pieces))
    return combining


def _applied(
    start: RoundStart, apply: Callable[[Sums], Result], clients: int, combining: Combining
) -> tuple[Sums, Result, tuple[BlockModel, ...], bytes, RefusalError | None]:
    """The sum, the new model and state with their descriptions, and why the sum is refused."""
    config: RoundConfig = start.config
    sums, before = Sums(config.shape.ring, {}, start.union, clients), Result(start.model, start.state)
    try:
        sums = combining.finish()
        after = apply(sums)
    except (ExcessError, BeyondDtypeError, NoWeightError, OwnRuleError) as error:
        return sums, before, config.model, config.state, error
    return sums, after, describe_model(config.task, after.model), describe_state(after.state), None


def _made_before(made: OwnResult, sums: Sums) -> Result:
    """What the own rule made of this sum before a restart."""
    if isinstance(made.ending, SumRefused):
        raise OwnRuleError(made.ending.explanation)
    return Result(made.model, made.state)


def _cause(error: OwnRuleError) -> str:
    """What the own rule raised and where, for the operator alone: it may hold numbers of the sum."""
    cause, place = error.__cause__, ""
    trace = cause.__traceback__ if cause is not None else None
    while trace is not None:
        place = f" in {trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return f"{error}: {_text(cause)}{place}; the sum is refused, and the model stays as it was"


def _text(cause: BaseException | None) -> str:
    """What an error says; its class is the rule's own, and its text may be anything, or fail."""
    try:
        return shortened(str(cause))
    except Exception as error:
        return f"(its text raised {type(error).__name__})"


def _excess(start: RoundStart, effect: ssa.Apply, error: ExcessError) -> Evidence:
    """No server's share is proved, and a client's values only where the task has a bound: who may have lied."""
    peer = f"S{1 - start.server}"
    proved = isinstance(error, BeyondNormsError)
    who = f"{peer} has spoiled its share"
    if not proved:
        who += ", or a client has submitted what it may not; which of the two cannot be told"
    return Evidence(
        number=start.config.number,
        about=peer if proved else either(peer, "a client"),
        kind="excess",
        first=effect.share,
        second=effect.peer_share,
        explanation=f"{shortened(str(error))}: {who}. The model is as it was, and the sum is known to both servers",
    )


@dataclass(frozen=True)
class Result:
    """The model after a round, and what the task's optimizer or own rule keeps beside it."""

    model: Model
    state: Model


def apply_sum(start: RoundStart, rule: OwnRule | None, contributors: Mapping[str, Counts], sums: Sums) -> Result:
    """Apply a sum as the task says.

    Raises:
        BeyondDtypeError: a block of the model cannot hold the result.
        NoWeightError: the clients' weights sum to 0.
        ExcessError: they sum to less.
        OwnRuleError: the task's own rule failed.
    """
    config, task = start.config, start.config.task
    if config.protocol == "psu":
        return Result(start.model, start.state)
    if task.adds:
        model = start.model
        added = {name: with_sum(sums.ring, name, model[name], total) for name, total in sums.totals.items()}
        return Result(model | added, {})
    update = dict(sums.update)
    if rule is not None:
        return Result(*own_step(task, rule, start.model, update, start.state, config.number, sums.clients))
    return Result(*average_and_step(task, start.model, update, start.state, sums.clients, contributors))
