"""What a server does in each state of a round of retrievals: a pure function of the state.

A message stays among the effects until an answer proves that the peer has it.
"""

from __future__ import annotations

from typing import assert_never

from fsl_async.protocols.ending import Send
from fsl_async.protocols.psr.states import Aborted, Closed, Concluded, Done, Open, Round, Terms
from fsl_async.wire.messages import Abort, Closing, Conclusion


def effects(state: Round, terms: Terms) -> tuple[Send, ...]:
    """What a server in this state does, and does again after a restart."""
    match state:
        case Open():
            return ()
        case Closed():
            return (Send(Closing(terms.round_id)),)
        case Concluded():
            return (Send(Closing(terms.round_id)), Send(Conclusion(terms.round_id, terms.outcome)))
        case Done():
            return (Send(Conclusion(terms.round_id, terms.outcome)),)
        case Aborted():
            return (Send(Abort(terms.round_id, state.explanation)),)
        case _:
            assert_never(state)
