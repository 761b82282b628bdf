"""The cells of parameters, seconds and bytes, each of a size that takes moments."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from examples.paper.cells import Results, Values
from examples.paper.efficiency import communication, computation, din, hashing, sections
from examples.paper.efficiency.experiments import EXPERIMENTS
from examples.paper.efficiency.printed import BIN_SIZES, EVALUATION, SCALE_FACTORS, PrintedTime, evaluation_time


def computed(compute: Any, **parameters: Any) -> Values:
    values: Values = compute(SimpleNamespace(parameters=parameters, progress=lambda done, note="": None))
    return values


def test_few_rows_fail_with_the_papers_scale_and_not_with_ours():
    values = computed(hashing.failures, rows=2**20, select=8, scale=0.75, seeds=50)
    assert values["paper"]["failures"] > 0
    assert values["paper"]["rows_left_over"] >= values["paper"]["failures"]
    assert values["ours"]["failures"] == 0
    assert values["ours"]["log2_bound"] <= -40


def test_hashing_is_the_same_for_the_same_seeds():
    parameters = {"rows": 2**12, "select": 64, "scale": 1.25, "seeds": 5}
    assert computed(hashing.failures, **parameters) == computed(hashing.failures, **parameters)


def test_the_papers_bin_sizes_are_near_three_times_one_hash():
    values = computed(hashing.bin_sizes, rows=2**10, percents=[10], scale=SCALE_FACTORS[2**10], seeds=20)["10"]
    assert 3 * min(values["fullest_of_one_hash"]) <= 45 <= 3 * max(values["fullest_of_one_hash"])
    assert max(values["fullest"]) < 45
    assert values["ours"]["bin_size"] <= min(values["fullest"])


def test_every_step_is_measured_in_both_securities():
    values = computed(computation.steps, rows=256, select=16, repeats=2)
    for security in computation.SECURITIES:
        for step in ("generation", "evaluation", "aggregation"):
            assert len(values[security][step]) == 2
            assert min(values[security][step]) > 0


def test_uploads_are_counted_on_the_wire():
    values = computed(communication.upload, rows=1024, select=10, bits=128)
    assert 1024 * 16 < values["trivial"] < 1024 * 17
    assert values["semi-honest"] < values["verified"] < values["trivial"]


def test_rounds_of_a_small_network():
    small = {"rows": 500, "width": 4, "select": 10, "dense": 50, "bits": 64, "fraction_bits": 24}
    values = computed(din.rounds, **small, clients=2, rounds=2)
    assert len(values["seconds"]) == 2
    assert values["bytes_up"] > 50 * 8


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_a_section_does_without_results(experiment):
    assert experiment.section(Results({})).text


def test_where_the_trivial_protocol_is_cheaper_it_is_bold():
    cheaper = SimpleNamespace(values={"semi-honest": 2**20, "verified": 2 * 2**20, "trivial": 2**19})
    dearer = SimpleNamespace(values={"semi-honest": 2**20, "verified": 2 * 2**20, "trivial": 2**22})
    results = Results({"upload-1024-1-128": cheaper, "upload-1024-5-128": dearer})  # type: ignore[dict-item]
    text = sections.communication(results).text
    assert "| 1.000 | 2.000 | **0.500** |" in text
    assert "| 1.000 | 2.000 | 4.000 |" in text


def test_a_misplaced_time_of_the_paper_is_compared_with_as_what_it_can_have_been_at_most() -> None:
    assert EVALUATION[2**10][0.3] == EVALUATION[2**20][0.1] == 7.532  # the same figure twice
    assert evaluation_time(2**20, 104_858) == PrintedTime(0.98, at_most=True)
    assert evaluation_time(2**15, 3277) == PrintedTime(0.124, at_most=True)
    assert evaluation_time(2**10, 103) == PrintedTime(0.012)
    assert evaluation_time(2**20, 10_486) is None
    assert evaluation_time(2**11, 205) is None


def test_the_papers_bin_sizes_are_three_times_the_load_of_one_hash() -> None:
    draw = np.random.default_rng(9)
    for rows, cells in BIN_SIZES.items():
        assert all(printed % 3 == 0 for printed in cells.values())
        for fraction, printed in cells.items() if rows <= 2**20 else ():
            bins = round(SCALE_FACTORS[rows] * fraction * rows)
            loads = [np.bincount(draw.integers(0, bins, rows), minlength=bins) for _ in range(3)]
            fullest = [load.max() for load in loads]
            assert min(fullest) * 0.75 <= printed / 3 <= max(fullest) * 1.25, (rows, fraction)
            if rows == 2**20:
                assert sum(loads).max() < 0.91 * printed, (rows, fraction)
