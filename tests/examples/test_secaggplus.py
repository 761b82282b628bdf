"""SecAgg+ as the comparison runs it: flwr's own workflow and mods on small sizes. `make learn` has flwr."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="flwr is in an environment of its own: `make learn` runs these")

from examples.secagg import secaggplus
from examples.secagg.cases import Case

STEP = 16 / 2**22
"""Of the quantisation: twice the clipping range over its range."""


@pytest.mark.parametrize("case", [Case(2**10, 100), Case(2**10, 100, 16), Case(2**10, 1000, clients=3)])
def test_a_round_is_the_mean_up_to_a_step_of_the_quantisation(case):
    figures = secaggplus.measure(case)
    assert 0 < figures.largest_error <= STEP
    assert figures.up > 8 * case.weights
    assert figures.down > 4 * case.weights
    assert min(figures.client, figures.server) > 0


def test_a_client_that_leaves_after_sharing_its_keys_does_not_count():
    assert secaggplus.measure(Case(2**10, 100, dropped=1)).largest_error <= STEP


def test_with_fewer_neighbours_than_the_threshold_there_is_no_result():
    with pytest.raises(RuntimeError, match="SecAgg\\+ halted: too few clients were left"):
        secaggplus.measure(Case(2**10, 100, clients=3, dropped=2))


def test_values_beyond_the_range_are_clipped():
    assert secaggplus.clip()["mean"] == pytest.approx([8, 8, -8], abs=STEP)


def test_a_mask_follows_32_bits_of_its_key():
    assert secaggplus.masks_follow_32_bits()


def test_the_settings_are_flwr_s_defaults():
    setting = secaggplus.setting()
    assert (setting["clipping_range"], setting["quantization_range"]) == (8.0, 2**22)
