"""A round at the sizes of a Deep Interest Network: what it costs, and that the sum is the clients' to the last bit."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="`make learn` installs PyTorch")

from examples.paper import adapter_cost


@pytest.mark.slow
async def test_a_round_at_the_sizes_of_a_recommender_costs_what_is_promised():
    measured = await adapter_cost.measure(clients=4)
    assert measured["exact"]
    assert measured["bytes_up"] <= 750_000
    assert measured["rounding"] <= 2.0**-25
    assert measured["processor_seconds"] <= 1.5, "half a second by itself, and other tests run beside it"
    assert measured["of_the_adapter"] <= 0.1
