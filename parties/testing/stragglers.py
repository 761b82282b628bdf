"""Lets clients' submissions arrive late at one server."""

from __future__ import annotations

from collections.abc import Sequence

from fsl_async.wire.codec import Message
from fsl_async.wire.messages import Hint, Submit
from parties.testing.faults import CALM, FaultBase
from parties.testing.injector import Injector
from parties.testing.round_faults import Straggle

__all__ = ["Stragglers"]


class Stragglers:
    """Holds back what a client sends to one server, from its n-th submission on.

    Args:
        injector: of the network that delays it.
        faults: the plan; only `Straggle` concerns it.
    """

    def __init__(self, injector: Injector, faults: Sequence[FaultBase]) -> None:
        self._injector = injector
        self._faults = [fault for fault in faults if isinstance(fault, Straggle)]
        self._submitted: dict[str, list[bytes]] = {}

    def watch(self, sender: str, receiver: str, message: Message) -> None:
        """Observe a message that is about to leave; a client's submission may be one that a fault delays."""
        if not isinstance(message, Submit | Hint):
            return
        rounds = self._submitted.setdefault(sender, [])
        if message.round_id not in rounds:
            rounds.append(message.round_id)
        for fault in self._faults:
            due = (fault.party, fault.submission, fault.server) == (sender, len(rounds), receiver)
            if due and fault not in self._injector.fired:
                self._injector.hold(sender, receiver, min(self._injector.now + fault.seconds, CALM))
                self._injector.strike(fault)
