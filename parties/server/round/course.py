"""What a round does by its protocol: the machine that it drives, and what the server computes and answers for it.

A course has the machine's state; its run (`parties.server.round.run`) feeds, records and restores it.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from parties.server.round.aggregating import Aggregation
from parties.server.round.outbox import Outbox
from parties.server.round.records import RoundRecords
from parties.server.round.serving import Serving
from parties.server.round.start import RoundStart
from parties.server.round.tools import Tools

Course: TypeAlias = Aggregation | Serving


def course_of(begun: RoundStart, records: RoundRecords, tools: Tools, outbox: Outbox) -> Course:
    """The course of a round, by the protocol that its configuration names."""
    match begun.config.protocol:
        case "ssa" | "psu":
            return Aggregation(begun, records, tools, outbox)
        case "psr":
            return Serving(begun, records, tools, outbox)
        case _:
            assert_never(begun.config.protocol)
