"""The bench of a round on a very large block, on a small one."""

from __future__ import annotations

import pytest

from tests.bench.vast import vast_round


@pytest.mark.slow
def test_both_servers_form_shares_and_one_adds_and_applies_them() -> None:
    """The sum is compared with the sum in the clear by the bench itself."""
    results = list(vast_round(rows=2**14, clients=2, threads=2))
    assert [result.name.partition(",")[0] for result in results] == [
        "evaluate",
        "form and store the share",
        "combine",
        "apply",
        "digest the model",
        "peak memory of one server",
    ]
    assert 2**20 < results[-1].rate < 2**30
