"""Where a server with doors takes the other server: there, and nobody else."""

import os

import pytest

from parties.server.reception import Listening, Reception
from transport import BusyError, HandshakeSettings, KeyPair, Kind, Limits, MemoryNetwork, RefusedError, Role

SERVER, PEER, CLIENT = (KeyPair.generate(os.urandom) for _ in range(3))


async def test_who_is_not_the_other_server_is_told_where_clients_are_taken(nursery):
    network, failures = MemoryNetwork(), []
    own = HandshakeSettings(SERVER.private, Role.SERVER_0, Kind.LIVE, os.urandom)
    listening = Listening("S0", PEER.public, "link", network, own, Limits(), clients_at="s0.example.org:7000")
    reception = Reception(listening, lambda origin, error: failures.append(error))
    address = await nursery.start(reception.listen)
    said = HandshakeSettings(CLIENT.private, Role.CLIENT, Kind.LIVE, os.urandom)
    with pytest.raises(RefusedError, match=r"S0 takes the other server here, and clients at s0\.example\.org:7000"):
        await network.dial(address, SERVER.public, said)
    peer = HandshakeSettings(PEER.private, Role.SERVER_1, Kind.LIVE, os.urandom)
    with pytest.raises(BusyError, match="about to stop"):  # the other server is let through, and finds no task yet
        await network.dial(address, SERVER.public, peer)
