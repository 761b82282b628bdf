"""A client in one round: the machines `entry`, `psr.client` and `ssa.client`, side by side.

What happens to the one may concern the others, and this module says how. It has no states of its own:

- Which of the two take part follows from what the round runs: retrievals in `psr` and `ssa`, submissions in `ssa` and
  `psu`.
- With a submission the retrievals of its round end; with its outcome the client is outside again.
- A round is lost only to a client that has submitted nothing in it.

A step that any of them refuses changes none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias, assert_never

import msgspec

from fsl_async.config import RoundConfig
from fsl_async.protocols import entry
from fsl_async.protocols.entry import Announced, Entry, Inside, Leave, Outside, RoundGone
from fsl_async.protocols.psr import client as psr
from fsl_async.protocols.ssa import client as ssa


class ClientRound(msgspec.Struct, frozen=True):
    """Where a client is in its round.

    Attributes:
        entry: whether it is in one.
        psr: its retrievals.
        ssa: its submission.
    """

    entry: Entry
    psr: psr.Retrieval = psr.Away()
    ssa: ssa.Submission = ssa.Away()


ClientEvent: TypeAlias = (
    Announced
    | psr.Ask
    | psr.Recollect
    | psr.Answered
    | psr.Interrupt
    | ssa.Submit
    | ssa.Receipted
    | ssa.Finish
    | RoundGone
    | Leave
)

UNDECIDED = ssa.Drafted | ssa.HalfReceipted | ssa.Submitted
"""States of a submission whose end is not known."""


def outside(after: int) -> ClientRound:
    """In no round; the next one is the first after that number."""
    return ClientRound(Outside(after))


def step(state: ClientRound, event: ClientEvent) -> ClientRound:
    """Take one event.

    Raises:
        MisuseError: the caller asks for more than a round allows.
        PeerViolationError: the servers contradict each other, or what was asked or sent.
        UnexpectedEvent: a machine does not accept the event.
    """
    match event:
        case Announced():
            return _announced(state, event)
        case psr.Ask() | psr.Recollect() | psr.Answered() | psr.Interrupt():
            return ClientRound(state.entry, psr.step(state.psr, event), state.ssa)
        case ssa.Submit():
            submission = ssa.step(state.ssa, event)
            return ClientRound(state.entry, _ended(state.psr), submission)
        case ssa.Receipted():
            return ClientRound(state.entry, state.psr, ssa.step(state.ssa, event))
        case ssa.Finish():
            submission = ssa.step(state.ssa, event)
            return ClientRound(entry.step(state.entry, Leave()), _ended(state.psr), submission)
        case RoundGone() | Leave():
            submission = state.ssa if isinstance(state.ssa, ssa.Away | ssa.Over) else ssa.step(state.ssa, event)
            return ClientRound(entry.step(state.entry, event), _ended(state.psr), submission)
        case _:
            assert_never(event)


def _announced(state: ClientRound, event: Announced) -> ClientRound:
    entered = entry.step(state.entry, event)
    match entered:
        case Inside(config=config):
            terms = psr.ClientTerms.of(config)
            retrieves, submits = config.protocol != "psu", config.protocol != "psr"
            return ClientRound(
                entered,
                psr.step(state.psr, psr.Entered(terms)) if retrieves else state.psr,
                ssa.step(state.ssa, ssa.Entered()) if submits else state.ssa,
            )
        case _:
            return ClientRound(entered, state.psr, state.ssa)


def _ended(state: psr.Retrieval) -> psr.Retrieval:
    return state if isinstance(state, psr.Away) else psr.step(state, psr.End())


def retrieved_before(config: RoundConfig, query: int) -> ClientRound:
    """Where a client is that was restarted after it had asked that query."""
    terms = psr.ClientTerms.of(config)
    submission = ssa.Away() if config.protocol == "psr" else ssa.Ready()
    return ClientRound(Inside(config), psr.Interrupted(terms, query), submission)


def submitted_before(config: RoundConfig, digest: bytes, receipts: Collection[int]) -> ClientRound:
    """Where a client is that was restarted after those servers had acknowledged its submission."""
    match sorted(receipts):
        case []:
            return ClientRound(Inside(config), ssa=ssa.Drafted(digest))
        case [server]:
            return ClientRound(Inside(config), ssa=ssa.HalfReceipted(digest, server))
        case _:
            return ClientRound(Inside(config), ssa=ssa.Submitted(digest))


def goes_on(state: ClientRound) -> bool:
    """Whether the round may be taken to be open still, as long as no server says otherwise.

    It may not where a retrieval was interrupted, which may be long ago, or where none is allowed any more.
    """
    return isinstance(state.psr, psr.Away | psr.Ready | psr.Holding) and (
        isinstance(state.psr, psr.Away) or psr.may_ask(state.psr)
    )


def may_be_lost(state: ClientRound) -> bool:
    """Whether the client is in a round and has submitted nothing in it."""
    return isinstance(state.entry, Inside) and isinstance(state.ssa, ssa.Away | ssa.Ready)
