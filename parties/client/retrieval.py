"""A client's private retrievals: queries with trees of their own, and the rows of its session recalled.

Rules: a query's number and trees are kept before it is sent, and a repeat is the same bytes; under one number go one
kind of trees only, so a number that the servers know with other trees is passed over; every sparse block is queried,
whichever is wanted. What makes a retrieval fail are sizes, kinds and public digests, never the rows that come of it: a
failure that depended on them would tell a server which answers it spoilt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.client.planting import Grove
from fsl_async.client.upload import read_answers, retrieval_part
from fsl_async.config import RoundConfig
from fsl_async.derivation import public_digest
from fsl_async.errors import MisuseError
from fsl_async.protocols.client import OfSession, QueryId, query_named
from fsl_async.task import Task
from fsl_async.wire.messages import Answer, Recall, Retrieve
from fsl_async.wire.public_part import Layout
from parties.client.requests import Requests
from parties.client.session import TreeSession
from parties.client.setup import ClientSetup
from parties.client.trees import Planting

__all__ = ["Answers", "Retriever"]

Answers: TypeAlias = tuple[memoryview, memoryview]
Wanted: TypeAlias = Mapping[int, npt.NDArray[np.uint32]]
Answered: TypeAlias = Callable[[int, QueryId], None]
"""Hears which server has answered which query."""


class Retriever:
    """How one client asks for rows; what it may ask when is its round's machine's."""

    def __init__(self, setup: ClientSetup, requests: Requests, answered: Answered) -> None:
        self._setup = setup
        self._requests = requests
        self._answered = answered

    async def plant(self, config: RoundConfig, rows: Wanted) -> Planting:
        """Plant trees at the wanted rows."""
        return await self._setup.lane.run(partial(Planting.fresh, config, rows, self._setup.randomness))

    async def query(self, planting: Planting, query: int) -> Answers:
        """Have trees answered under a number; where the round needs none, there is nothing to ask."""
        if not any(planting.config.shape.sparse_blocks()):
            return self._nothing(query)
        config, client = planting.config, self._setup.identity.name
        part = await self._setup.lane.run(partial(retrieval_part, config, planting.grove))
        announced = public_digest(Layout.retrieval(config.shape), part, planting.grove.digest)
        commitments = planting.grove.seeds.commitments(config.round_id(), client)

        async def ask(server: int) -> memoryview:
            message = Retrieve(
                round_id=config.round_id(),
                query=query,
                seed=planting.grove.seeds.msk[server],
                commitments=commitments,
                public_digest=announced,
            )
            return await self._answer(server, message, (part,) if config.carrier(client) == server else ())

        return await self._requests.both(ask)

    async def recall(self, config: RoundConfig, commitments: tuple[bytes, bytes]) -> Answers:
        """Have the trees of those commitments answered again; where the round needs none, there is nothing to ask."""
        if not any(config.shape.sparse_blocks()):
            return self._nothing(OfSession())

        async def ask(server: int) -> memoryview:
            return await self._answer(server, Recall(config.round_id(), commitments[server]), ())

        return await self._requests.both(ask)

    async def read(self, config: RoundConfig, grove: Grove, answers: Answers, wanted: Wanted) -> dict[int, Any]:
        """The wanted rows of every block that has trees, in the order wanted.

        Raises:
            PeerViolationError: an answer has another size than the task implies.
        """
        found = await self._setup.lane.run(partial(read_answers, config, grove, answers))
        places = {index: _places(grove.rows[index], rows) for index, rows in wanted.items() if index in found}
        return {index: found[index][chosen] for index, chosen in places.items()}

    def _nothing(self, query: QueryId) -> Answers:
        for server in (0, 1):
            self._answered(server, query)
        return memoryview(b""), memoryview(b"")

    async def _answer(self, server: int, message: Retrieve | Recall, bulk: tuple[bytearray, ...]) -> memoryview:
        answer = await self._requests.ask(server, message, bulk, Answer)
        self._answered(server, query_named(answer.message.query))
        return answer.bulk


def check_session_rows(task: Task, session: TreeSession, wanted: Wanted) -> None:
    """Refuse rows that a session's trees do not stand at.

    Raises:
        MisuseError: names the first of them.
    """
    for index, rows in wanted.items():
        new = rows[~np.isin(rows, session.planting.grove.rows[index])]
        if len(new):
            raise MisuseError(
                f"block {task.sparse(index).name!r}: row {new[0]} is not among the session's rows, and the "
                "task's selection is fixed; start a new session (`forget_session`) to select other rows"
            )


def _places(rows: npt.NDArray[np.uint32], wanted: npt.NDArray[np.uint32]) -> npt.NDArray[np.intp]:
    """Where each wanted row stands among the selected ones."""
    order = np.argsort(rows)
    return np.asarray(order[np.searchsorted(rows, wanted, sorter=order)])
