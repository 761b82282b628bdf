"""What a server answers to a retrieval: rows and tags, of which a client reads its rows only if they fit."""

from functools import cache

import numpy as np

from fsl_async.errors import PeerViolationError, WrongAnswerError
from tests.fsl_async.client.test_wrong_answers import Asked, task_of

from .parser import SLOW, Parser


@cache
def _asked() -> Asked:
    return Asked(task_of(3, 20), {"items": [3, 7]})


def _read(data: bytes) -> None:
    """As S1's answer, beside the honest one of S0; what is read is the model's."""
    asked = _asked()
    try:
        found = asked.read(None, data)
    except WrongAnswerError:
        assert data != asked.answers[1]
        return
    assert np.array_equal(found[0], asked.model["items"][asked.client_trees.rows[0]])


PARSERS = (
    Parser(
        "retrieved-answer", _read, lambda: [_asked().answers[1]], (PeerViolationError,), "S1", share=SLOW, longest=2_000
    ),
)
