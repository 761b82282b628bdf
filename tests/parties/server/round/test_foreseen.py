"""Long lists of the other server's are read and judged beside the event loop, once, and with the same result."""

import pytest

from fsl_async.protocols.ssa import transitions
from parties import simulate
from parties.compute import InlineLane
from parties.server.round import aggregating
from tests.support.shop import TASK, honest_round, model


class Watched(InlineLane):
    """Remembers what it ran."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def run(self, work):
        self.names.append(getattr(getattr(work, "func", work), "__name__", ""))
        return await super().run(work)


@pytest.mark.parametrize(("longest", "times"), [(0, 2), (10_000, 0)])
async def test_what_is_long_is_read_and_judged_in_the_lane(monkeypatch, longest: int, times: int) -> None:
    for limit in ("LONG_LIST", "LONG_PROOFS", "LONG_BYTES"):
        monkeypatch.setattr(aggregating, limit, longest)
    judged = []
    judge = transitions._failed
    monkeypatch.setattr(transitions, "_failed", lambda *lists: judged.append(1) or judge(*lists))
    lane = Watched()
    async with simulate(TASK, model(), seed=1, lane=lane) as network:
        await honest_round(network)
    assert lane.names.count("unpack_digests") == 2 * times
    assert lane.names.count("_step") == 2 * times
    assert len(judged) == 2  # each server once, though the state, the evidence and the commit all depend on it
