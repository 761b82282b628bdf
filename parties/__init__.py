"""The parties: clients and servers as actors, in memory (`simulate`) or over TCP (`connect`), and the command line.

A name's module is imported when the name is first used: what the command line does without a party, such as its help,
waits for none.
"""

from typing import TYPE_CHECKING

from fsl_async.lazy_names import lazy

if TYPE_CHECKING:
    from parties.client.blocking import BlockingClient as BlockingClient
    from parties.client.client import Client as Client
    from parties.deployment.connecting import connect as connect, connect_blocking as connect_blocking
    from parties.errors import (
        AlreadyCountedError as AlreadyCountedError,
        BeganAnewError as BeganAnewError,
        OutcomeUnknownError as OutcomeUnknownError,
        RequestDeniedError as RequestDeniedError,
        RoundClosedError as RoundClosedError,
        ServerBusyError as ServerBusyError,
        SumRefusedError as SumRefusedError,
    )
    from parties.identity.keys import Identity as Identity, PublicIdentity as PublicIdentity, Registry as Registry
    from parties.outcome import (
        ClientOutcome as ClientOutcome,
        RoundOutcome as RoundOutcome,
        SubmissionReceipt as SubmissionReceipt,
    )
    from parties.server.server import Server as Server
    from parties.simulation.network import Network as Network, simulate as simulate
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        {
            "parties.client.blocking": "BlockingClient",
            "parties.client.client": "Client",
            "parties.deployment.connecting": "connect connect_blocking",
            "parties.errors": (
                "AlreadyCountedError BeganAnewError OutcomeUnknownError RequestDeniedError RoundClosedError "
                "ServerBusyError SumRefusedError"
            ),
            "parties.identity.keys": "Identity PublicIdentity Registry",
            "parties.outcome": "ClientOutcome RoundOutcome SubmissionReceipt",
            "parties.server.server": "Server",
            "parties.simulation.network": "Network simulate",
        },
    )
