"""The parties: clients and servers as actors, in memory (`simulate`) or over TCP (`connect`), and the command line.

A name's module is imported when the name is first used: what the command line does without a party, such as its help,
waits for none.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parties.blocking import BlockingClient, connect_blocking
    from parties.client import (
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
    from parties.cluster import Network, simulate
    from parties.deployment import connect
    from parties.identity import Identity, PublicIdentity, Registry
    from parties.outcome import ClientOutcome, RoundOutcome
    from parties.server import Server
else:
    _PLACES = {
        "AlreadyCountedError": "parties.client",
        "BeganAnewError": "parties.client",
        "BlockingClient": "parties.blocking",
        "Client": "parties.client",
        "ClientOutcome": "parties.outcome",
        "Identity": "parties.identity",
        "Network": "parties.cluster",
        "OutcomeUnknownError": "parties.client",
        "PublicIdentity": "parties.identity",
        "Registry": "parties.identity",
        "RequestDeniedError": "parties.client",
        "RoundClosedError": "parties.client",
        "RoundOutcome": "parties.outcome",
        "Server": "parties.server",
        "ServerBusyError": "parties.client",
        "SubmissionReceipt": "parties.client",
        "SumRefusedError": "parties.client",
        "connect": "parties.deployment",
        "connect_blocking": "parties.blocking",
        "simulate": "parties.cluster",
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
