"""A client's private retrievals: queries with trees of their own, and the rows of its session recalled.

Rules: a query's number is stored before it is sent, and a repeat is the same bytes; a number stands for one set of
trees only, so a number that the servers know with other trees is passed over; every sparse block is queried, whichever
is wanted. A retrieval fails because of sizes, kinds, public digests, and tags that cover all rows of all trees alike,
never because of the rows that were wanted: such a failure would tell a server whether the rows that it falsified were
among them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.client.planting import ClientTrees
from fsl_async.client.upload import read_answers, retrieval_part
from fsl_async.config import RoundConfig
from fsl_async.derivation import public_digest
from fsl_async.errors import MisuseError
from fsl_async.protocols.psr import client as psr
from fsl_async.task import Task
from fsl_async.wire.codec import Received
from fsl_async.wire.messages import Answer, Recall, Retrieve
from fsl_async.wire.public_part import Layout
from parties.client.downloads import Downloads, Unions
from parties.client.participation import Participation
from parties.client.requests import Requests
from parties.client.session import TreeSession
from parties.client.setup import ClientSetup
from parties.client.trees import MadeTrees, TreeMaker
from parties.errors import RequestDeniedError
from parties.outcome import Retrieved

Answers: TypeAlias = tuple[memoryview, memoryview]
Wanted: TypeAlias = Mapping[int, npt.NDArray[np.uint32]]
Rows: TypeAlias = dict[int, npt.NDArray[Any]]


@dataclass(eq=False, repr=False)
class Retriever:
    """One client's retrievals in the rounds that it is in."""

    _setup: ClientSetup
    _requests: Requests
    _participation: Participation
    _unions: Unions
    _downloads: Downloads
    _planter: TreeMaker

    async def retrieve(self, config: RoundConfig, wanted: Wanted) -> Retrieved:
        """Retrieve rows of sparse blocks.

        Returns:
            By block, the rows in the order wanted, zeros in place of those that this round or its trees lack.
        """
        task = self._setup.task
        within = {index: self._unions.within(config, index, rows) for index, rows in wanted.items()}
        ranks = {index: self._unions.named(config, index, rows[within[index]]) for index, rows in wanted.items()}
        found, client_trees = await self._found(config, ranks)
        arrays = Retrieved()
        for index, rows in wanted.items():
            name, there = task.sparse(index).name, within[index]
            arrays[name] = np.zeros((len(rows), *found[index].shape[1:]), dtype=found[index].dtype)
            arrays[name][there] = found[index]
            there[there] = ~np.isin(ranks[index], client_trees.deferred.get(index, ()))
            if not there.all():
                arrays.deferred[name] = rows[~there]
        return arrays

    async def _found(self, config: RoundConfig, wanted: Wanted) -> tuple[Rows, ClientTrees]:
        """The wanted rows, and the trees that they were found with."""
        match self._participation.session:
            case TreeSession(planting=planting) as session if session.stands:
                check_session_rows(self._setup.task, session, wanted)
                async with self._participation.session_is_known():
                    with self._participation.asking():
                        self._participation.step(psr.Recollect())
                        answers = await self._recall(config, session.commitments)
                async with self._participation.session_is_trusted():
                    found = await self._read(config, planting.client_trees, answers)
            case _:
                planting, found = await self._query_fresh(config, wanted)
        rows = planting.client_trees.rows
        chosen = {index: found[index][_positions(rows[index], of)] for index, of in wanted.items() if index in found}
        return chosen | await self._downloads.plain(config, wanted), planting.client_trees

    async def _query_fresh(self, config: RoundConfig, wanted: Wanted) -> tuple[MadeTrees, Rows]:
        """Plant trees at the wanted rows and have them answered.

        A number that this client used in this round before it was restarted is passed over. Trees that were answered
        wrongly are not held, so no submission can use them.

        Raises:
            WrongAnswerError: one of the servers answered wrongly.
        """
        while True:
            planting = await self._planter.plant(config, wanted)  # first: a number that is taken is used up
            try:
                with self._participation.asking():
                    query = await self._participation.begin_query(config)
                    answers = await self._query(planting, query)
            except RequestDeniedError as error:
                if error.reason != "conflict":
                    raise
                continue
            found = await self._read(config, planting.client_trees, answers)
            self._participation.hold(query, planting)
            return planting, found

    async def _query(self, planting: MadeTrees, query: int) -> Answers:
        """Have trees answered under a number; in a round without trees there is nothing to ask."""
        if not any(planting.config.shape.sparse_blocks()):
            return self._nothing(query)
        config, client = planting.config, self._setup.identity.name
        part = await self._setup.lane.run(partial(retrieval_part, config, planting.client_trees))
        announced = public_digest(Layout.retrieval(config.shape), part, planting.client_trees.digest)
        commitments = planting.client_trees.seeds.commitments(config.round_id(), client)

        async def ask(server: int) -> Received[Answer]:
            message = Retrieve(
                round_id=config.round_id(),
                query=query,
                seed=planting.client_trees.seeds.msk[server],
                commitments=commitments,
                public_digest=announced,
            )
            bulk = (part,) if config.carrier(client) == server else ()
            return await self._requests.ask(server, message, bulk, Answer)

        return await self._answers(ask)

    async def _recall(self, config: RoundConfig, commitments: tuple[bytes, bytes]) -> Answers:
        """Have the trees of those commitments answered again; in a round without trees there is nothing to ask."""
        if not any(config.shape.sparse_blocks()):
            return self._nothing(psr.OfSession())

        async def ask(server: int) -> Received[Answer]:
            return await self._requests.ask(server, Recall(config.round_id(), commitments[server]), (), Answer)

        return await self._answers(ask)

    async def _read(self, config: RoundConfig, client_trees: ClientTrees, answers: Answers) -> Rows:
        """All rows of every block that has trees, in the trees' order, once both answers are known to be right.

        Raises:
            PeerViolationError: an answer has another size than the task implies.
            WrongAnswerError: one of the servers answered wrongly.
        """
        return await self._setup.lane.run(partial(read_answers, config, client_trees, answers))

    def _nothing(self, query: psr.QueryId) -> Answers:
        for server in (0, 1):
            self._participation.answered(server, query)
        return memoryview(b""), memoryview(b"")

    async def _answers(self, ask: Callable[[int], Awaitable[Received[Answer]]]) -> Answers:
        """Both servers' answers, as they come."""
        answers: dict[int, memoryview] = {}
        async with self._requests.replies(ask) as replies:
            async for server, answer in replies:
                self._participation.answered(server, psr.query_named(answer.message.query))
                answers[server] = answer.bulk
        return answers[0], answers[1]


def check_session_rows(task: Task, session: TreeSession, wanted: Wanted) -> None:
    """Refuse rows that a session's trees do not select.

    Raises:
        MisuseError: names the first of them.
    """
    for index, rows in wanted.items():
        new = rows[~np.isin(rows, session.planting.client_trees.rows[index])]
        if len(new):
            raise MisuseError(
                f"block {task.sparse(index).name!r}: row {new[0]} is not among the session's rows, and the "
                "task's selection is fixed; start a new session (`forget_session`) to select other rows"
            )


def _positions(rows: npt.NDArray[np.uint32], wanted: npt.NDArray[np.uint32]) -> npt.NDArray[np.intp]:
    """The position of each wanted row among the selected ones."""
    order = np.argsort(rows)
    return np.asarray(order[np.searchsorted(rows, wanted, sorter=order)])
