"""The parties: clients and servers as actors, in memory (`simulate`) or over TCP (`connect`), and the command line.

A name's module is imported when the name is first used: what the command line does without a party, such as its help,
waits for none.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parties.client.blocking import BlockingClient, connect_blocking
    from parties.client.client import (
        AlreadyCountedError,
        BeganAnewError,
        Client,
        OutcomeUnknownError,
        RequestDeniedError,
        RoundClosedError,
        ServerBusyError,
        SubmissionReceipt,
        SumRefusedError,
    )
    from parties.deployment.connecting import connect
    from parties.identity.keys import Identity, PublicIdentity, Registry
    from parties.outcome import ClientOutcome, RoundOutcome
    from parties.server.server import Server
    from parties.simulation.network import Network, simulate
else:
    _PLACES = {
        "AlreadyCountedError": "parties.client.client",
        "BeganAnewError": "parties.client.client",
        "BlockingClient": "parties.client.blocking",
        "Client": "parties.client.client",
        "ClientOutcome": "parties.outcome",
        "Identity": "parties.identity.keys",
        "Network": "parties.simulation.network",
        "OutcomeUnknownError": "parties.client.client",
        "PublicIdentity": "parties.identity.keys",
        "Registry": "parties.identity.keys",
        "RequestDeniedError": "parties.client.client",
        "RoundClosedError": "parties.client.client",
        "RoundOutcome": "parties.outcome",
        "Server": "parties.server.server",
        "ServerBusyError": "parties.client.client",
        "SubmissionReceipt": "parties.client.client",
        "SumRefusedError": "parties.client.client",
        "connect": "parties.deployment.connecting",
        "connect_blocking": "parties.client.blocking",
        "simulate": "parties.simulation.network",
    }

    def __getattr__(name: str) -> object:
        """Import a public name from where it is."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(_PLACES[name]), name)
        return found

    def __dir__() -> list[str]:
        """The public names, imported or not."""
        return __all__


__all__ = [
    "AlreadyCountedError",
    "BeganAnewError",
    "BlockingClient",
    "Client",
    "ClientOutcome",
    "Identity",
    "Network",
    "OutcomeUnknownError",
    "PublicIdentity",
    "Registry",
    "RequestDeniedError",
    "RoundClosedError",
    "RoundOutcome",
    "Server",
    "ServerBusyError",
    "SubmissionReceipt",
    "SumRefusedError",
    "connect",
    "connect_blocking",
    "simulate",
]
