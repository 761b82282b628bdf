"""What the two servers show each other when they link: that they are the servers, and not only hold a channel key.

A server's doors hold its channel key as well, and may run on other hosts; the key that signs they do not have. So each
server signs for its link, and whoever holds the channel key alone is not taken for the server there:

    S1 → S0    in the handshake: the task's digest (32) ‖ S1's proof (64)
    S0 → S1    in the welcome: S0's proof

Rules: a proof is shown to the holder of the other server's channel key alone, inside the handshake; it is the same each
time, so whoever has both a server's channel key and a proof of that server's that it once showed can link.
"""

from __future__ import annotations

from fsl_async.digests import DIGEST_BYTES, Domain
from parties.identity.keys import Identity, PublicIdentity, verify

__all__ = ["is_link_proof", "link_payload", "link_proof", "shown_proof"]


def link_proof(own: Identity, peer: PublicIdentity, task: bytes) -> bytes:
    """A server's proof for its link to another one, for the task of that digest: 64 bytes."""
    return own.sign(Domain.LINK, task, own.public.channel, peer.channel)


def is_link_proof(proof: bytes, peer: PublicIdentity, own: PublicIdentity, task: bytes) -> bool:
    """Whether this is the other server's proof for its link to ours."""
    return verify(peer.statement, proof, Domain.LINK, task, peer.channel, own.channel)


def link_payload(own: Identity, peer: PublicIdentity, task: bytes) -> bytes:
    """What the server that dials shows in its handshake."""
    return task + link_proof(own, peer, task)


def shown_proof(payload: bytes) -> bytes:
    """The proof in such a payload."""
    return payload[DIGEST_BYTES:]
