"""The names under which states and events stand in stores. A class may be renamed; its stored name may not."""

import inspect
from collections.abc import Iterator

from fsl_async.protocols.ending import RoundState
from fsl_async.protocols.machine import Event, PeerEvent, State
from fsl_async.protocols.psr.client import OfSession
from fsl_async.protocols.ssa.states import Listing
from parties.testing.machines import machines

STORED = {
    "assembly": "Assembled Direct DirectOnly Expecting Mismatched Public PublicOnly",
    "ending": "CloseRound GaveUp PeerAbort PeerConclusion",
    "entry": "Announced HalfEntered Inside Leave Outside RoundGone Undrawn",
    "epochs": "Absent Brought Counted Dropped Established Hinted Planted",
    "partials": "Added Adding Doubted Joined Leaving Lost Put Sealed Settled Settling Wanted",
    "psr.client": "Answered Ask Asked Away End Entered HalfAnswered Holding Interrupt Interrupted Ready Recollect",
    "psr.transitions": "Aborted Closed Concluded Done Open PeerClosed",
    "psu.client": "Described Downloaded Known Told Unknown",
    "psu.transitions": "Aligned Everything Found MainSettled Seeking UnionFound UnionLost UnionPublished",
    "sampling": "Answering Drawn Frozen Gathering Listed PeerAsked TooFew",
    "ssa.client": "Away Drafted Entered Finish HalfReceipted Over Ready Receipted Submit Submitted",
    "ssa.states": "Aborted Applied Chosen Closed Closing Combined Committed Concluded Differed Done Evaluated "
    "GraceOver Open PeerCommitment PeerCounts PeerProofs PeerRoster PeerShare Proved Revealed Rostered RowsCounted "
    "Submitted Summed Tallied Verified",
    "toss": "Committing PeerTossCommitment PeerTossReveal Revealing Tossed",
}
"""By module of `fsl_async.protocols`, the stored names of its states and events in alphabetical order."""

BASES = {PeerEvent, RoundState, Listing}


def below(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from below(kind)


def declared() -> Iterator[type[State | Event]]:
    """Every state and event of the package; nobody stores their bases."""
    machines()
    for kind in (*below(State), *below(Event)):
        if kind.__module__.startswith("fsl_async.") and kind not in BASES:
            yield kind


def test_stored_names_are_those_of_every_store_so_far() -> None:
    names: dict[str, list[str]] = {}
    for kind in declared():
        module = kind.__module__.removeprefix("fsl_async.protocols.")
        names.setdefault(module, []).append(kind.__struct_config__.tag)
    assert {module: " ".join(sorted(tags)) for module, tags in names.items()} == STORED
    assert OfSession.__struct_config__.tag == "OfSession"


def test_every_stored_name_is_written_out() -> None:
    unwritten = [kind for kind in declared() if f'tag="{kind.__struct_config__.tag}"' not in inspect.getsource(kind)]
    assert not unwritten, f"give these a tag= of their own, so that they can be renamed: {unwritten}"
