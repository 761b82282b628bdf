"""What both shares of a round's sum come to when they are opened: an update that is applied, or a sum that is refused.

Rules: both servers come to the same result, because both use the same shares, clients and model. A refused sum leaves
the model as it was, but both servers know it; so the round's report tells it apart from a round that was aborted before
anything was opened, after which the same values may be submitted again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from fsl_async.config import BlockModel, RoundConfig, describe_model
from fsl_async.digests import Buffer
from fsl_async.foreign_text import shortened
from fsl_async.model_numbers import BeyondDtypeError
from fsl_async.protocols import ssa
from fsl_async.server.contributions import ExcessError
from fsl_async.union import UnionBlock, describe_union
from parties.outcome import Aborted, Done, Model, RoundOutcome, RoundReport, SumRefused
from parties.server.evidence import Evidence, either
from parties.server.round.records import RoundRecords
from parties.server.round.start import RoundStart, Tools
from parties.server.round.update import Combined, combine


@dataclass(frozen=True)
class Opened:
    """What an opened sum has come to.

    Attributes:
        outcome: the sum and who is in it; without the sum where it is refused.
        ending: whether the sum was applied, or why it was refused.
        union: by sparse block, the union that was found, or that the round is aligned on.
        model: the model after the round.
        described: the model after the round, as configurations describe it.
    """

    outcome: RoundOutcome
    ending: Done | SumRefused
    union: Model
    model: Model
    described: tuple[BlockModel, ...]

    def report(self, config: RoundConfig) -> RoundReport:
        """The public account of the round."""
        return RoundReport(
            round_id=config.round_id(),
            number=config.number,
            ending=self.ending,
            clients=self.outcome.clients,
            excluded=self.outcome.excluded,
            model=self.described,
            union=_found_union(config, self.union),
        )


def aborted_report(config: RoundConfig, explanation: str) -> RoundReport:
    """The public account of a round that was aborted."""
    return RoundReport(
        round_id=config.round_id(),
        number=config.number,
        ending=Aborted(explanation),
        clients=(),
        excluded={},
        model=config.model,
    )


async def conclude(begun: RoundStart, records: RoundRecords, tools: Tools, effect: ssa.Apply) -> Opened:
    """Combine both shares, and apply the sum or refuse it.

    A sum that is more than its clients can have contributed is evidence, too.

    Raises:
        StorageError: a share is not stored, or the evidence could not be.
    """
    ours, theirs = [await records.share(name) for name in (effect.share, effect.peer_share)]
    combining = partial(_combined, begun, len(effect.counted), ours, theirs)
    (update, elements, union, model), described, error = await tools.lane.run(combining)
    ending = Done() if error is None else SumRefused(shortened(str(error)))
    if isinstance(error, ExcessError):
        await tools.evidence.keep(_excess(begun, effect, shortened(str(error))))
    outcome = RoundOutcome(
        number=begun.config.number,
        clients=tuple(effect.counted),
        excluded=dict(effect.excluded),
        update=update,
        elements=elements,
        union=dict(union),
    )
    return Opened(outcome, ending, union, model, described)


def _found_union(config: RoundConfig, union: Model) -> tuple[UnionBlock, ...]:
    """The union that a union round has found, as configurations and outcomes describe it; empty in a main round."""
    if config.protocol == "ssa":
        return ()
    return tuple(describe_union(block.name, union[block.name], block.rows) for _, block in config.task.sparse_blocks())


def _combined(
    begun: RoundStart, clients: int, ours: Buffer, theirs: Buffer
) -> tuple[Combined, tuple[BlockModel, ...], ExcessError | BeyondDtypeError | None]:
    """What both shares give together, the new model's description, and the error if the sum is refused."""
    config: RoundConfig = begun.config
    try:
        combined = combine(config, begun.model, begun.union, ours, theirs, clients)
    except (ExcessError, BeyondDtypeError) as error:
        return ({}, {}, begun.union, begun.model), config.model, error
    return combined, describe_model(config.task, combined[-1]), None


def _excess(begun: RoundStart, effect: ssa.Apply, refused: str) -> Evidence:
    """Neither a server's share nor a client's values are proved, so anyone except this server may have lied."""
    peer = f"S{1 - begun.server}"
    return Evidence(
        number=begun.config.number,
        about=either(peer, "a client"),
        kind="excess",
        first=effect.share,
        second=effect.peer_share,
        explanation=f"{refused}: {peer} has spoiled its share, or a client has submitted what it may not; which of the "
        "two cannot be told. The model is as it was, and the sum is known to both servers",
    )
