"""The same again and again: told a few times, then counted, and the count told once a minute.

What strangers cause, and clients, and what a warning repeats, must not fill a disk: a single address that connects and
leaves does so a thousand times a second. Rules:

- In a minute the first few lines of a kind and source are written as they are; of the rest one line tells how many
  there were, when the minute is over.
- A source is a client, or the network that an address belongs to. So many sources have lines of their own in a minute;
  the others share one for each kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_network

__all__ = ["FIRST", "MINUTE", "MOST_SOURCES", "Repeated", "Repeats", "Source", "network_of"]

MINUTE = 60.0
FIRST = 3
"""Lines of one kind and source that are written in a minute as they are."""

MOST_SOURCES = 64
"""Kinds and sources that have lines of their own in a minute."""

OTHERS = "others"
_IPV4_BITS, _IPV6_BITS = 24, 48


@dataclass(frozen=True, slots=True)
class Source:
    """What is repeated, and by whom.

    Attributes:
        event: what happens, for people.
        kind: of which kind it is; few are possible.
        who: a client or network; empty where it is nobody's doing.
    """

    event: str
    kind: str
    who: str = ""


@dataclass(frozen=True, slots=True)
class Repeated:
    """So many lines were not written."""

    source: Source
    times: int


class Repeats:
    """The repetitions of one minute."""

    def __init__(self) -> None:
        self._times: dict[Source, int] = {}
        self._over_at = math.inf

    def admits(self, source: Source, now: float) -> bool:
        """Whether a line is written as it is; else it is counted."""
        if source not in self._times and len(self._times) >= MOST_SOURCES:
            source = Source(source.event, source.kind, OTHERS)
        if not self._times:
            self._over_at = now + MINUTE
        self._times[source] = self._times.get(source, 0) + 1
        return source.who != OTHERS and self._times[source] <= FIRST

    def over(self, now: float) -> Iterator[Repeated]:
        """What was not written in the minute, if that is over; the next one begins with the next line."""
        if now < self._over_at:
            return
        times, self._times, self._over_at = self._times, {}, math.inf
        for source, number in times.items():
            left_out = number - (0 if source.who == OTHERS else FIRST)
            if left_out > 0:
                yield Repeated(source, left_out)


def network_of(origin: str) -> str:
    """The network that an address, or a host's own network, belongs to; anything else is what it is."""
    try:
        network = ip_network(origin, strict=False)
    except ValueError:
        return origin
    bits = _IPV4_BITS if network.version == 4 else _IPV6_BITS
    return str(network.supernet(new_prefix=bits)) if network.prefixlen > bits else str(network)
