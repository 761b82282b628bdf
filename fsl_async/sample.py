"""How many and which of the clients that asked take part in a round, where a task lets only some of them.

Who is drawn follows from the round's secret of both servers alone: each client has a rank that nobody can foresee or
choose, and the lowest ranks are drawn. So both servers draw the same clients, and every client that asked is as likely
to be drawn as any other.

Source: McMahan, Moore, Ramage, Hampson, Agüera y Arcas 2017 (the server selects a random fraction of the clients).
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from math import ceil

from fsl_async.digests import Domain, digest
from fsl_async.wire.client_names import pack_names


def size_of(sample: float, asked: int, most: int) -> int:
    """How many clients are drawn of those that asked.

    Args:
        sample: a whole number of clients; or a fraction, above 0 and at most 1, of those that asked, rounded up.
        asked: how many asked.
        most: how many the task admits to a round.
    """
    wanted = sample if isinstance(sample, int) else ceil(Fraction(str(sample)) * asked)  # 0.1 of 30 is 3, not 4
    return min(wanted, asked, most)


def secret_of(proof_key: bytes) -> bytes:
    """The round's secret of both servers by which clients are ranked; no client ever learns it."""
    return digest(Domain.SAMPLE_KEY, proof_key)


def drawn_of(asked: Collection[str], size: int, secret: bytes) -> tuple[str, ...]:
    """The clients that are drawn, sorted."""
    return tuple(sorted(sorted(asked, key=lambda name: digest(Domain.SAMPLE_RANK, secret, name.encode()))[:size]))


def sample_digest(drawn: Collection[str], secret: bytes) -> bytes:
    """What names a sample in public; without the secret, nobody can find out by trying whose names are in it."""
    return digest(Domain.SAMPLE, secret, pack_names(drawn))
