"""The eight cleartext bytes with which each side opens, so that what cannot work fails at once and by name.

    magic 1f "FS" 0a (4) | protocol version, big-endian (2) | role (1) | kind of randomness (1)

The client speaks first; the server answers in the same form even if it then closes, so that both sides can say which
two values did not fit. Both preambles are part of the handshake's prologue, so the handshake fails if one is altered on
the way. They say nothing about who the client is.

The magic begins with a byte that no text protocol begins with, and ends a line: anything else that listens at the
address, such as an HTTP server, answers at once that it does not understand, and is recognised by that. Without the end
of a line it would wait for one, and only seem slow.

Rules: bytes that do not begin with the magic are foreign; the version is checked before anything that a later version
might define differently; randomness of the kind SIMULATION, whose keys anybody can derive from a seed, never completes
a handshake with LIVE.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from transport.errors import ForeignPeerError, KindMismatchError, RoleMismatchError, VersionMismatchError

MAGIC = b"\x1fFS\n"
PROTOCOL_VERSION = 6
PREAMBLE_SIZE = 8

_DOMAIN = b"fsl-async channel prologue\0"


class Role(enum.IntEnum):
    """What an endpoint is in a deployment.

    Anybody may claim a role; only the static key proves who it is. Clients dial servers, servers dial each other.
    """

    CLIENT = 1
    SERVER_0 = 2
    SERVER_1 = 3


_DIALS: frozenset[tuple[int, int]] = frozenset(
    {
        (Role.CLIENT, Role.SERVER_0),
        (Role.CLIENT, Role.SERVER_1),
        (Role.SERVER_0, Role.SERVER_1),
        (Role.SERVER_1, Role.SERVER_0),
    }
)
"""Who dials whom."""


class Kind(enum.IntEnum):
    """Where an endpoint's randomness comes from.

    LIVE is the operating system, as `os.urandom`; SIMULATION is a seed, so that a run can be repeated. The two kinds
    never complete a handshake with each other.
    """

    LIVE = 1
    SIMULATION = 2


@dataclass(frozen=True, slots=True)
class Preamble:
    """One side's opening; `role` and `kind` are plain numbers, since a stranger may send any."""

    version: int
    role: int
    kind: int

    def encode(self) -> bytes:
        """Returns the eight bytes."""
        return MAGIC + self.version.to_bytes(2, "big") + bytes([self.role, self.kind])

    @classmethod
    def decode(cls, data: bytes) -> Preamble:
        """Reads the eight bytes.

        Raises:
            ForeignPeerError: they do not begin with the magic.
        """
        require_magic(data[: len(MAGIC)])
        return cls(int.from_bytes(data[4:6], "big"), data[6], data[7])

    def require_compatible(self, peer: Preamble) -> None:
        """Refuses a peer that this side cannot talk to.

        Raises:
            VersionMismatchError: it speaks another protocol version.
            KindMismatchError: its randomness is of another kind.
        """
        if peer.version != self.version:
            raise VersionMismatchError(
                f"we speak protocol version {self.version}, the peer speaks version {peer.version}; "
                "install the same release on both sides"
            )
        if peer.kind != self.kind:
            raise KindMismatchError(
                f"our randomness is {_name(Kind, self.kind)}, the peer's is {_name(Kind, peer.kind)}; "
                "simulated and live parties never mix"
            )


def require_magic(data: bytes) -> None:
    """Refuses bytes that are not the magic.

    Raises:
        ForeignPeerError: they are not; the message shows them.
    """
    if data != MAGIC:
        raise ForeignPeerError(
            f"the peer opened with {_shown(data)} instead of {_shown(MAGIC)}: it is not an fsl-async endpoint; "
            "check the address and port"
        )


def require_roles(initiator: int, responder: int) -> None:
    """Refuses a pair of roles that never connect in this direction.

    Clients dial servers and servers dial each other.

    Raises:
        RoleMismatchError: the two do not fit; the message gives both.
    """
    if (initiator, responder) not in _DIALS:
        raise RoleMismatchError(
            f"a {_name(Role, initiator)} does not dial a {_name(Role, responder)}; check which address is whose"
        )


def prologue(initiator: bytes, responder: bytes) -> bytes:
    """What both sides must have seen alike: both preambles."""
    return _DOMAIN + initiator + responder


def _shown(data: bytes) -> str:
    """Bytes as text: a literal of bytes is withheld from logs, because it may be a key."""
    return repr(data.decode("latin-1"))


def _name(names: type[enum.IntEnum], value: int) -> str:
    return names(value).name if value in set(names) else f"unknown ({value})"
