"""What a server does for a client that asks for values: private retrievals, and downloads of what moves plainly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.bin_count import planned
from fsl_async.config import restricted
from fsl_async.digests import Buffer
from fsl_async.task import Dense, Sparse, Task
from fsl_async.union import pack_union, union_task
from fsl_async.wire.answer import AnswerLayout
from fsl_async.wire.messages import NO_RETRIEVAL, Answer, Block, Download, Recall, Retrieve
from fsl_async.wire.pieces import parts_of
from fsl_async.wire.public_part import Layout
from parties.server.clients.deposits import Deposit, assemble, check_seed, keep, session_trees
from parties.server.replies import Reply, RequestRefusedError, ReserveMemory
from parties.server.round.retrieval import Asked
from parties.server.round.run import RoundRun
from parties.server.rounds import FoundUnion
from parties.server.sessions import Sessions
from parties.server.store_layout import RequestKey


class Retrievals:
    """Answers retrievals and downloads.

    Args:
        sessions: the clients'.
        longest_answer: the longest answer to a retrieval, in bytes; each takes room for as much.
    """

    def __init__(self, sessions: Sessions, longest_answer: int) -> None:
        self._sessions = sessions
        self._longest_answer = longest_answer

    def check(self, run: RoundRun, client: str, message: Retrieve) -> None:
        """Check what a retrieval's message says, whatever becomes of its bulk.

        Raises:
            RequestRefusedError: it is not carried out.
        """
        _check_trees(run)
        retrievals = run.config.task.retrievals
        if not 1 <= message.query <= retrievals:
            raise RequestRefusedError.because(
                "malformed", f"retrievals are numbered from 1 to {retrievals}, not {message.query}"
            )
        check_seed(run, client, message)
        run.requests.check_direct(RequestKey(client, "retrieve", message.query), message.public_digest)

    async def retrieve(
        self, run: RoundRun, client: str, message: Retrieve, deposit: Deposit | None, reserve: ReserveMemory
    ) -> Reply:
        """Answer a retrieval with trees of its own, whose message is checked.

        Raises:
            RequestRefusedError: it is not carried out.
        """
        key, layout = RequestKey(client, "retrieve", message.query), Layout.retrieval(run.config.shape)
        name = message.public_digest
        await assemble(run, key, name, deposit, layout)
        await keep(run, key, name)
        await reserve(self._longest_answer)
        answer = await run.answer(Asked(client, message.seed, key, name))
        return Answer(round_id=run.round_id, query=message.query), answer

    async def recall(self, run: RoundRun, client: str, message: Recall, reserve: ReserveMemory) -> Reply:
        """Answer a retrieval with the trees of the client's session.

        Raises:
            RequestRefusedError: it is not carried out.
        """
        _check_trees(run)
        session = await session_trees(self._sessions, run, client, message)
        await reserve(self._longest_answer)
        answer = await run.answer(Asked(client, session.msk, None, session.tree, session.trees))
        return Answer(round_id=run.round_id, query=NO_RETRIEVAL), answer

    async def download(self, run: RoundRun, message: Download, reserve: ReserveMemory) -> Reply:
        """Answer with a whole block, the union's rows of a block that moves plainly, or the union itself.

        Raises:
            RequestRefusedError: the round has no such block to download.
        """
        block = {block.name: block for block in run.config.task.blocks}.get(message.block)
        plain = {entry.name for entry in run.config.plain}
        if message.union and (message.whole or message.part):
            raise RequestRefusedError.because("malformed", "either the union or a part of the block, not both at once")
        if isinstance(block, Sparse) and run.config.union and message.union:
            await reserve(-(-block.rows // 8))
            content: Buffer = pack_union(run.start.union[block.name], block.rows)
        elif _is_whole(run.config.task, block, message):
            await reserve(0)  # it is the model's own memory
            content = _part(message, np.ascontiguousarray(run.start.model[message.block]).data.cast("B"))
        elif block is not None and block.name in plain and not message.union:
            array, rows = run.start.model[block.name], run.start.union[block.name]
            await reserve(max(1, len(rows)) * array[:1].nbytes)
            content = _part(message, restricted(array, rows).data.cast("B"))
        else:
            raise RequestRefusedError.because("malformed", f"{message.block!r} is not a block to be downloaded here")
        return Block(round_id=run.round_id, block=message.block), content

    async def download_found(self, found: FoundUnion, message: Download, reserve: ReserveMemory) -> Reply:
        """Answer with the union that a round has found, which is over.

        Raises:
            RequestRefusedError: the union has no such block.
        """
        packed = found.packed.get(message.block)
        if packed is None or not message.union or message.part:
            raise RequestRefusedError.because("malformed", f"{message.block!r} has no union to be downloaded here")
        await reserve(0)  # all clients share it
        return Block(round_id=found.round_id, block=message.block), packed


def _check_trees(run: RoundRun) -> None:
    """Refuse a retrieval where no block has trees: its answer would be empty, and honest clients ask for none.

    Raises:
        RequestRefusedError: the round has no block that is retrieved.
    """
    if not any(run.config.shape.sparse_blocks()):
        raise RequestRefusedError.because("malformed", "no block of this round is retrieved: download its blocks whole")


def _part(message: Download, content: memoryview) -> memoryview:
    """The part of a block that is asked for.

    Raises:
        RequestRefusedError: the block has no such part.
    """
    parts = parts_of(len(content))
    if message.part >= len(parts):
        raise RequestRefusedError.because(
            "malformed", f"{message.block!r} has {len(parts)} parts, from 0: part {message.part} is none"
        )
    return content[parts[message.part]]


def _is_whole(task: Task, block: Sparse | Dense | None, message: Download) -> bool:
    """Whether a download asks for all of a block that has a model: of a sparse one in as many words."""
    match block:
        case Sparse():
            return message.whole and task.protocol != "psu"
        case Dense():
            return not message.union and not message.whole and block.name != task.weights
        case None:
            return False


def longest_answer(task: Task, model: Mapping[str, npt.NDArray[Any]]) -> int:
    """Bytes of the longest answer to a retrieval; of a packed union, where the task only finds unions."""
    if task.protocol == "psu":
        return max(1 + -(-block.rows // 8) for _, block in task.sparse_blocks())
    rows = {index: _row_bytes(model[block.name]) for index, block in task.sparse_blocks()}
    task = planned(task)
    shapes = (union_task(task), task) if task.finds_unions else (task,)
    return max(AnswerLayout.of(shape, rows).size for shape in shapes)


def _row_bytes(array: np.ndarray[Any, Any]) -> int:
    return int(np.prod(array.shape[1:], initial=array.itemsize))
