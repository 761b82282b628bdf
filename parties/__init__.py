"""The parties: clients and servers as actors, in memory (`simulate`) or over TCP (`connect`), and the command line.

A name's module is imported when the name is first used: what the command line does without a party, such as its help,
waits for none.
"""

from typing import TYPE_CHECKING

from fsl_async.lazy_names import lazy
from fsl_async.own_packages import require_own

require_own("transport")

if TYPE_CHECKING:
    from parties import aio as aio
    from parties.client.blocking import BlockingClient as BlockingClient
    from parties.client.client import Client as Client
    from parties.client.setup import ClientSetup as ClientSetup
    from parties.compute import ComputeLane as ComputeLane, InlineLane as InlineLane, ThreadLane as ThreadLane
    from parties.deployment.connecting import connect as connect, connect_blocking as connect_blocking
    from parties.deployment.server import server_setup as server_setup
    from parties.errors import (
        AlreadyCountedError as AlreadyCountedError,
        BeganAnewError as BeganAnewError,
        BudgetSpentError as BudgetSpentError,
        ClientEndedError as ClientEndedError,
        NoUnionError as NoUnionError,
        NotDrawnError as NotDrawnError,
        OtherCountedError as OtherCountedError,
        OutcomeUnknownError as OutcomeUnknownError,
        OutcomesDifferError as OutcomesDifferError,
        RequestDeniedError as RequestDeniedError,
        RoundClosedError as RoundClosedError,
        ServerBusyError as ServerBusyError,
        StillInDoubtError as StillInDoubtError,
        SumRefusedError as SumRefusedError,
    )
    from parties.files.models import load_model as load_model, save_model as save_model
    from parties.host import Host as Host
    from parties.identity.keys import Identity as Identity, PublicIdentity as PublicIdentity
    from parties.identity.registry import Registry as Registry
    from parties.identity.tokens import TokenBook as TokenBook
    from parties.outcome import (
        ClientOutcome as ClientOutcome,
        PrivacySpent as PrivacySpent,
        Retrieved as Retrieved,
        RoundOutcome as RoundOutcome,
        SubmissionReceipt as SubmissionReceipt,
    )
    from parties.server.admission import Anyone as Anyone, ListOnly as ListOnly, WithToken as WithToken
    from parties.schedule import ConversationLimits as ConversationLimits, Schedule as Schedule
    from parties.server.server import Server as Server
    from parties.server.setup import ServerSetup as ServerSetup
    from parties.settings.writing import (
        free_addresses as free_addresses,
        load_task as load_task,
        save_task as save_task,
        write_deployment as write_deployment,
    )
    from parties.simulation.blocking import (
        BlockingNetwork as BlockingNetwork,
        simulate_blocking as simulate_blocking,
    )
    from parties.simulation.experiment import Turn as Turn, run_experiment as run_experiment
    from parties.simulation.history import History as History
    from parties.simulation.recording import record_rounds as record_rounds
    from parties.peers import (
        MessageChannel as MessageChannel,
        Peer as Peer,
    )
    from parties.simulation.network import Network as Network, simulate as simulate
    from parties.storage.sqlite_store import SqliteStore as SqliteStore
    from parties.storage.store import (
        DiskFullError as DiskFullError,
        MemoryStore as MemoryStore,
        Store as Store,
        StoreLostError as StoreLostError,
    )
else:
    __all__, __getattr__, __dir__ = lazy(__name__, __file__)
