"""The parties: clients and servers as actors, in memory (`simulate`) or over TCP (`connect`), and the command line."""

from parties.blocking import BlockingClient, connect_blocking
from parties.client import (
    Client,
    OutcomeUnknownError,
    RequestDeniedError,
    RoundClosedError,
    ServerBusyError,
    SubmissionReceipt,
)
from parties.cluster import Network, simulate
from parties.deployment import connect
from parties.identity import Identity, PublicIdentity, Registry
from parties.outcome import ClientOutcome, RoundOutcome
from parties.server import Server

__all__ = [
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
    "connect",
    "connect_blocking",
    "simulate",
]
