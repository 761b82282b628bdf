"""The parties: clients and servers as actors, in memory (`simulate`) or over TCP (`connect`), and the command line."""

from parties.client import Client, RequestDeniedError, RoundClosedError, SubmissionReceipt
from parties.cluster import Network, simulate
from parties.deployment import connect
from parties.identity import Identity, PublicIdentity, Registry
from parties.outcome import ClientOutcome, RoundOutcome
from parties.server import Server

__all__ = [
    "Client",
    "ClientOutcome",
    "Identity",
    "Network",
    "PublicIdentity",
    "Registry",
    "RequestDeniedError",
    "RoundClosedError",
    "RoundOutcome",
    "Server",
    "SubmissionReceipt",
    "connect",
    "simulate",
]
