"""What a server answers to a retrieval: rows and tags, of which a client reads its rows only if they fit."""

from functools import cache

import numpy as np

from fsl_async import Ring, Sparse, Task
from fsl_async.client.planting import ClientTrees
from fsl_async.client.upload import read_answers
from fsl_async.errors import PeerViolationError, WrongAnswerError
from fsl_async.server.retrieval import PermutedModel, Query
from tests.support.rounds import Round, run

from .parser import SLOW, Parser

TASK = Task(
    name="answers", blocks=[Sparse("items", rows=20, select=2, width=3)], ring=Ring(64), min_clients=2, max_clients=5
)
MODEL = {"items": np.arange(60, dtype=np.float32).reshape(20, 3)}


@cache
def _asked() -> tuple[Round, ClientTrees, tuple[bytes, bytes]]:
    made = Round(TASK, MODEL, 1)
    client_trees = made.plant({"items": [3, 7]})
    answers = []
    for server in (0, 1):
        work = PermutedModel(made.config, server, MODEL).begin(
            [Query(client_trees.seeds.msk[server], made.query_part(client_trees))], 1
        )
        run([*work.selecting, *work.answering])
        answers.append(work.finish()[0].tobytes())
    return made, client_trees, (answers[0], answers[1])


def _read(data: bytes) -> None:
    """As S1's answer, beside the honest one of S0; what is read is the model's."""
    made, client_trees, (first, _) = _asked()
    try:
        found = read_answers(made.config, client_trees, (memoryview(first), memoryview(data)))
    except WrongAnswerError:
        assert data != _asked()[2][1]
        return
    assert np.array_equal(found[0], MODEL["items"][client_trees.rows[0]])


PARSERS = (
    Parser("retrieved-answer", _read, lambda: [_asked()[2][1]], (PeerViolationError,), "S1", share=SLOW, longest=2_000),
)
