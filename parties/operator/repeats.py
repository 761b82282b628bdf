"""Limits repeated log lines: the first few are written, the others counted, and the count written once a minute.

Lines that strangers or clients cause, and repeated warnings, must not fill a disk: a single address can connect and
disconnect a thousand times a second. Rules:

- Within a minute, the first few lines of a kind and source are written. When the minute is over, one line says how many
  more there were, and what the last of them said.
- A source is a client, or the network that an address belongs to. A limited number of sources is counted separately in
  a minute; all others share one count for each kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_network

MINUTE = 60.0
FIRST = 3
"""So many lines of one kind and source are written in a minute."""

MOST_SOURCES = 64
"""So many pairs of kind and source are counted separately in a minute."""

OTHERS = "others"
_IPV4_BITS, _IPV6_BITS = 24, 48


@dataclass(frozen=True, slots=True)
class Source:
    """What is repeated, and who causes it.

    Attributes:
        event: what happens, as text.
        kind: one of a few kinds of the event.
        who: a client or network; empty if nobody in particular causes it.
    """

    event: str
    kind: str
    who: str = ""


class Repeats:
    """Counts the lines of one minute."""

    def __init__(self) -> None:
        self._times: dict[Source, int] = {}
        self._examples: dict[Source, str] = {}
        self._over_at = math.inf

    def admits(self, source: Source, now: float, text: str = "") -> bool:
        """Whether a line with this text is to be written; otherwise it is counted."""
        if source not in self._times and len(self._times) >= MOST_SOURCES:
            source = Source(source.event, source.kind, OTHERS)
        if not self._times:
            self._over_at = now + MINUTE
        self._times[source] = self._times.get(source, 0) + 1
        admitted = source.who != OTHERS and self._times[source] <= FIRST
        if not admitted:
            self._examples[source] = text
        return admitted

    def over(self, now: float) -> Iterator[tuple[Source, int, str]]:
        """By source, how many lines were not written, and the last one's text, if the minute is over.

        The next minute begins with the next line.
        """
        if now < self._over_at:
            return
        times, self._times, self._over_at = self._times, {}, math.inf
        examples, self._examples = self._examples, {}
        for source, number in times.items():
            left_out = number - (0 if source.who == OTHERS else FIRST)
            if left_out > 0:
                yield source, left_out, examples[source]


def network_of(origin: str) -> str:
    """The network that an address or a smaller network belongs to; any other text is returned unchanged."""
    try:
        network = ip_network(origin, strict=False)
    except ValueError:
        return origin
    bits = _IPV4_BITS if network.version == 4 else _IPV6_BITS
    return str(network.supernet(new_prefix=bits)) if network.prefixlen > bits else str(network)
