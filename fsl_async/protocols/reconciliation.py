"""When the servers connect: does each still know what it has said to the other, and how their rounds ended?

A store that was put back (an older copy, a snapshot of a disk) knows less than its server has said. A server that
continued from it could send something else in the same place, and two different answers can expose a client. One server
alone cannot notice this; two can. When they connect, each first states how far it has got, what it has said and what it
has heard, and both reach the same verdict on whose store is behind:

    the other has settled rounds that this one does not know         this store is behind
    the other heard what this one has not said, or said differently  this store is behind
    the same with the roles exchanged                                the other store is behind
    both have settled as many rounds, but different ones             the stores do not belong together

The server whose store is behind stops, and names its store. The other one continues, and ignores that server until it
comes back with another store. The verdict rests on what the other server states, which nobody can check: a server that
lies about what it knows can stop the other one, as a silent server can. But its statement alone must not make both
start again from nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from fsl_async.protocols import psr, sampling, ssa
from fsl_async.protocols import toss as tosses
from fsl_async.protocols.ending import Step
from fsl_async.wire.messages import Known


@dataclass(frozen=True)
class Agreed:
    """Each server still knows what it has said."""


@dataclass(frozen=True)
class Behind:
    """This server's store is behind.

    Attributes:
        why: what shows it.
    """

    why: str


@dataclass(frozen=True)
class PeerBehind:
    """The other server's store is behind.

    Attributes:
        why: what shows it.
    """

    why: str


@dataclass(frozen=True)
class Apart:
    """The two stores do not belong together."""


Verdict: TypeAlias = Agreed | Behind | PeerBehind | Apart

Round: TypeAlias = ssa.Round | psr.Round
"""The state of a round, whichever protocol it runs."""

_HEARD: dict[str, Step] = {
    tosses.PeerTossCommitment.said: Step.TOSS_COMMITMENT,
    tosses.PeerTossReveal.said: Step.TOSS_REVEAL,
    sampling.PeerAsked.said: Step.ASKED,
    psr.PeerClosed.said: Step.CLOSING,
    ssa.PeerRoster.said: Step.ROSTER,
    ssa.PeerProofs.said: Step.PROOFS,
    ssa.PeerCounts.said: Step.COUNTS,
    ssa.PeerCommitment.said: Step.COMMITMENT,
    ssa.PeerShare.said: Step.SHARE,
    ssa.PeerConclusion.said: Step.CONCLUSION,
}


def known_at_rest() -> Known:
    """What is known between rounds, when the other server can have heard nothing of the next one."""
    return Known(said=Step.CONCLUSION)


def known_of_toss(toss: tosses.Toss) -> Known:
    """What is known while a round's seed is being tossed; the caller adds how the rounds before it ended."""
    half, heard = toss.half, tosses.heard_in(toss)
    said = Step.TOSS_COMMITMENT if isinstance(toss, tosses.Committing) else Step.TOSS_REVEAL
    first = tosses.PeerTossCommitment(half.commitment(), half.model).content()
    return Known(
        said=said,
        heard=max((_HEARD[kind] for kind in heard), default=Step.NOTHING),
        toss=first,
        peer_toss=heard.get(tosses.PeerTossCommitment.said, b""),
    )


def known_of_sampling(toss: tosses.Toss, state: sampling.Sampling) -> Known:
    """What is known while it is drawn who takes part; the caller adds how the rounds before it ended."""
    before, heard, sent = known_of_toss(toss), sampling.heard_in(state), sampling.sent_in(state)
    known: Known = msgspec.structs.replace(
        before,
        said=Step.ASKED if sent else before.said,
        heard=Step.ASKED if heard else before.heard,
        asked=sent,
        peer_asked=heard.get(sampling.PeerAsked.said, b""),
    )
    return known


def known_of_round(before: Known, state: Round, round_id: bytes) -> Known:
    """What is known of the current round; the caller adds how the rounds before it ended.

    Args:
        before: what is known of its toss, or of its draw.
        state: the round's.
        round_id: its id.
    """
    heard = psr.heard_in(state) if isinstance(state, psr.Round) else ssa.heard_in(state)
    known: Known = msgspec.structs.replace(
        before,
        present=round_id,
        said=max(before.said, state.said),
        heard=max((_HEARD[kind] for kind in heard), default=Step(before.heard)),
        roster=ssa.roster_sent(state),
        peer_roster=heard.get(ssa.PeerRoster.said, b""),
    )
    return known


def compare(ours: Known, theirs: Known) -> Verdict:
    """Whose store is behind, as both servers find it."""
    if why := _behind(ours, theirs):
        return Behind(why)
    if why := _behind(theirs, ours):
        return PeerBehind(why)
    if ours.settled == theirs.settled and ours.last != theirs.last:
        return Apart()
    return Agreed()


def _behind(one: Known, other: Known) -> str:
    """Why one server's store must be behind, by what the other one knows; empty where it need not be."""
    if other.settled > one.settled + 1:
        return f"{other.settled} rounds are over, and it knows of {one.settled}"
    if other.settled == one.settled + 1:
        return _behind_by_one(one, other)
    if other.settled == one.settled:
        return _behind_in_round(one, other)
    if one.settled == other.settled + 1 and one.aborted and one.last == other.present:
        return "it aborted a round in which it had committed to its share" if other.heard >= Step.COMMITMENT else ""
    return ""


def _behind_by_one(one: Known, other: Known) -> str:
    number = other.settled
    if one.present and one.present != other.last:
        return f"round {number} is over, and it has opened another round of that number"
    if other.peer_toss:
        return f"it has tossed for round {number + 1} before, and does not know that round {number} is over"
    if other.aborted:
        return ""  # it may have been aborted at any time
    if one.said < Step.SHARE:
        return f"round {number} is done, and it does not know that it revealed its share"
    return ""


def _behind_in_round(one: Known, other: Known) -> str:
    number = one.settled + 1
    if one.last != other.last:
        return ""
    if one.aborted and not other.aborted:
        return f"it aborted round {one.settled}, which is done"
    if one.toss and other.peer_toss and one.toss != other.peer_toss:
        return f"it has tossed for round {number} before, with another half of the seed"
    if one.asked and other.peer_asked and one.asked != other.peer_asked:
        return f"for round {number} it has sent another list of who asked before"
    if one.said < other.heard:
        heard, said = Step(other.heard), Step(one.said)
        return f"in round {number} it has said its {_name(heard)} before, and does not know more than its {_name(said)}"
    if one.roster and other.peer_roster and one.roster != other.peer_roster:
        return f"in round {number} it has sent another list of clients before"
    return ""


def _name(word: Step) -> str:
    return "asker list" if word is Step.ASKED else word.name.lower().replace("_", " ")
