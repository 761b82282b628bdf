"""Error feedback: what a round does not carry is carried by a later one, and nothing is lost or counted twice."""

import re
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fsl_async import Dense, MisuseError, Ring, Sparse, Task
from fsl_async.learning import ErrorFeedback, MegaElements, StateMapping
from parties import load_model, save_model

ITEMS, HEAD = Sparse("items", rows=9, width=2, select=2), Dense("head", size=3)


def task_of(*blocks, **fields) -> Task:
    given = {"ring": Ring(64, fraction_bits=4), "updates": "any", "min_clients": 2, "max_clients": 10}
    return Task(name="goods", blocks=blocks or [ITEMS, HEAD], **(given | fields))


TASK = task_of()


@dataclass(frozen=True)
class Receipt:
    left_out: dict[str, list[int]] = field(default_factory=dict)


def refused(words: str):
    return pytest.raises(MisuseError, match=re.escape(words))


def rows_of(*pairs: tuple[int, tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([row for row, _ in pairs], dtype=np.int64), np.array([values for _, values in pairs]).reshape(-1, 2)


def table(given) -> np.ndarray:
    whole = np.zeros((9, 2))
    if given is not None:
        whole[given[0]] = given[1]
    return whole


def test_the_largest_rows_go_and_the_others_wait_until_they_are_the_largest() -> None:
    update = {"items": rows_of((1, (1, 1)), (4, (-4, 0)), (6, (0, 3)), (8, (0.5, 0)))}

    first = ErrorFeedback().compress(update, TASK)
    assert first.update["items"][0].tolist() == [4, 6]
    assert first.update["items"][1].tolist() == [[-4, 0], [0, 3]]
    assert first.deferred["items"].tolist() == [1, 8]

    second = first.feedback.compress({"items": rows_of((1, (1, 1)), (2, (3, 0)))}, TASK)
    assert second.update["items"][0].tolist() == [1, 2]
    assert second.update["items"][1].tolist() == [[2, 2], [3, 0]], "row 1 of both rounds"
    assert second.deferred["items"].tolist() == [8]

    third = second.feedback.compress({}, TASK)
    assert third.update["items"][0].tolist() == [8]
    assert third.feedback.residuals == {}


def test_what_rounding_takes_is_sent_once_it_has_grown() -> None:
    feedback, sent = ErrorFeedback(), []
    for _ in range(8):
        step = feedback.compress({"head": np.array([1 / 64, 0, 0])}, TASK)  # a quarter of the ring's smallest
        sent.append(float(step.update["head"][0]))
        feedback = step.feedback
    assert sum(sent) == 8 / 64
    assert set(sent) == {0.0, 1 / 16}


def test_rows_that_the_submission_left_out_wait_as_well() -> None:
    update = {"items": rows_of((1, (1, 1)), (4, (-4, 1 / 64)), (6, (0, 3)))}
    sent = ErrorFeedback().compress(update, TASK)
    feedback = sent.feedback_after(Receipt({"items": [4], "other": []}))
    assert table(feedback.residuals["items"]).tolist() == table(rows_of((1, (1, 1)), (4, (-4, 1 / 64)))).tolist()
    assert table(sent.feedback_after(Receipt()).residuals["items"])[4].tolist() == [0, 1 / 64]
    both = sent.feedback_after(Receipt({"items": [4]}), {"items": np.array([4, 6])})
    assert table(both.residuals["items"]).tolist() == table(update["items"]).tolist()
    assert [*sent.rows] == ["items"]
    with refused("block 'items': [1] were left out, and not all of them are in the update"):
        sent.feedback_after(Receipt({"items": [1]}))
    with refused("left rows of block 'words' out, and the update has none of them"):
        sent.feedback_after(Receipt({"words": [1]}))


def test_only_retrieved_rows_are_sent_where_the_task_says_so() -> None:
    task = task_of(updates="retrieved")
    first = ErrorFeedback().compress({"items": rows_of((1, (1, 0)), (4, (4, 0)), (6, (3, 0)))}, task)
    assert first.deferred["items"].tolist() == [1]
    second = first.feedback.compress({"items": rows_of((5, (0.25, 0)))}, task)
    assert second.update["items"][0].tolist() == [5], "row 1 was not retrieved this time"
    third = second.feedback.compress({"items": rows_of((1, (0, 0)))}, task)
    assert third.update["items"][1].tolist() == [[1, 0]], "named by the update, so it was retrieved"


def test_a_block_of_weights_is_passed_on() -> None:
    task = task_of(ITEMS, HEAD, Dense("n", size=1), apply="weighted-mean", weights="n")
    sent = ErrorFeedback().compress({"head": np.ones(3), "n": np.array([7.0])}, task)
    assert sent.update["n"].tolist() == [7.0]
    assert "n" not in sent.feedback.residuals


numbers = st.floats(-1000, 1000, width=32)
updates = st.fixed_dictionaries(
    {},
    optional={
        "items": st.lists(st.integers(0, 8), unique=True).flatmap(
            lambda rows: st.tuples(
                st.just(np.array(rows, dtype=np.int64)), hnp.arrays(np.float64, (len(rows), 2), elements=numbers)
            )
        ),
        "head": hnp.arrays(np.float64, 3, elements=numbers),
    },
)


@given(st.lists(updates, max_size=5), st.sampled_from([4, 24]), st.data())
def test_what_goes_and_what_stays_are_what_came(rounds, fraction_bits, data) -> None:
    task = task_of(ring=Ring(64, fraction_bits=fraction_bits))
    feedback = ErrorFeedback()
    for update in rounds:
        before = {name: table(feedback.residuals.get(name)) for name in ["items"]}
        total = before["items"] + table(update.get("items"))
        head = feedback.residuals.get("head", np.zeros(3)) + update.get("head", np.zeros(3))
        sent = feedback.compress(update, task)
        rows, values = sent.update["items"]
        assert len(rows) == min(2, np.count_nonzero(total.any(axis=1)))
        left_out = data.draw(st.lists(st.sampled_from(rows.tolist()), unique=True) if len(rows) else st.just([]))
        feedback = sent.feedback_after(Receipt({"items": left_out}))
        carried = table((rows, values))
        carried[left_out] = 0
        assert np.array_equal(carried + table(feedback.residuals.get("items")), total)
        assert np.array_equal(sent.update["head"] + feedback.residuals.get("head", np.zeros(3)), head)
        task.ring.encode(values, task.largest_integer)
        feedback = ErrorFeedback.of(feedback.arrays())


def test_nothing_that_was_handed_over_is_changed() -> None:
    update = {"items": rows_of((4, (1 / 64, 1))), "head": np.full(3, 1 / 64)}
    copies = {"items": tuple(part.copy() for part in update["items"]), "head": update["head"].copy()}
    first = ErrorFeedback().compress(update, TASK)
    kept = {name: array.copy() for name, array in first.feedback.arrays().items()}
    first.feedback.compress(update, TASK)
    first.feedback_after(Receipt({"items": [4]}))
    assert np.array_equal(update["items"][1], copies["items"][1])
    assert np.array_equal(update["head"], copies["head"])
    assert all(np.array_equal(array, kept[name]) for name, array in first.feedback.arrays().items())


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_it_goes_through_a_file(tmp_path, suffix: str) -> None:
    update = {"items": rows_of((1, (1, 1)), (4, (-4, 0)), (6, (0, 3))), "head": np.full(3, 1 / 64)}
    feedback = ErrorFeedback().compress(update, TASK).feedback
    path = tmp_path / f"feedback.{suffix}"
    save_model(path, feedback.arrays())
    again = ErrorFeedback.of(load_model(path))
    left, right = feedback.compress(update, TASK), again.compress(update, TASK)
    assert left.update["items"][1].tobytes() == right.update["items"][1].tobytes()
    assert left.update["head"].tobytes() == right.update["head"].tobytes()


def test_what_is_no_feedback() -> None:
    with refused("error feedback: 'head' is no part of it"):
        ErrorFeedback.of({"head": np.zeros(3)})
    with refused("error feedback: 'rows/items' is no part of it, or its other half is missing"):
        ErrorFeedback.of({"rows/items": np.zeros(3)})
    with refused("error feedback: 'values/items' is no part of it, or its other half is missing"):
        ErrorFeedback.of({"values/items": np.zeros(3)})


def test_what_is_no_update() -> None:
    with refused("block 'items' at [4, 1]: nan is not a finite number"):
        ErrorFeedback().compress({"items": rows_of((2, (1, 1)), (4, (1, np.nan)))}, TASK)
    with refused("block 'head' at [2]: inf is not a finite number"):
        ErrorFeedback().compress({"head": np.array([0, 0, np.inf])}, TASK)
    with refused("block 'head' at [1]: 50.0 does not fit; the largest is 2.0"):
        ErrorFeedback().compress({"head": np.array([0, 50.0, 0])}, task_of(largest=2.0))
    with refused("task 'goods' has no block 'words'"):
        ErrorFeedback().compress({"words": np.zeros(3)}, TASK)
    with refused("task 'goods' has no block 'words'"):
        ErrorFeedback({"words": np.zeros(3)}).compress({}, TASK)
    with refused("block 'items': row 9 is outside 0 to 8"):
        ErrorFeedback().compress({"items": rows_of((9, (1, 1)))}, TASK)
    with refused("block 'items': a row is named twice"):
        ErrorFeedback().compress({"items": rows_of((3, (1, 1)), (3, (1, 1)))}, TASK)
    with refused("block 'items': values of shape (1, 2) expected, got (2,)"):
        ErrorFeedback().compress({"items": (np.array([3]), np.array([1.0, 1.0]))}, TASK)
    with refused("an update is a dict from names to arrays, got list"):
        ErrorFeedback().compress([], TASK)  # type: ignore[arg-type]


def test_an_update_that_does_not_fit_is_named_by_its_row() -> None:
    with refused("block 'items' at [7, 1]: 50.0 does not fit; the largest is 2.0"):
        ErrorFeedback().compress({"items": rows_of((2, (1, 1)), (7, (1, 50)))}, task_of(largest=2.0))


def test_all_weights_are_sent_in_the_end_although_each_round_carries_one_in_twenty() -> None:
    state = {"w": np.random.default_rng(3).normal(size=(40, 10))}
    mapping = StateMapping.of(state, [MegaElements("weights", width=1, select=20)])
    task = task_of(*mapping.blocks, ring=Ring(64, fraction_bits=30))
    feedback, carried = ErrorFeedback(), np.zeros((400, 1))
    update = mapping.update({"w": np.zeros((40, 10))}, state)
    for _ in range(21):
        sent = feedback.compress(update, task)
        rows, values = sent.update["weights"]
        carried[rows] += values
        feedback, update = sent.feedback_after(Receipt()), {}
    assert np.array_equal(carried, np.rint(state["w"].reshape(-1, 1) * 2.0**30) / 2.0**30)
