"""What a client's file of updates says: numbers, or elements of the ring; and what it must not leave open."""

import numpy as np
import pytest

from fsl_async import Dense, MisuseError, Ring, Sparse, Task
from parties.client.arguments import encoded_updates
from parties.commands.client_options import updates_from

TASK = Task(
    name="t",
    blocks=[Sparse("items", rows=9, select=2, width=2), Dense("head", size=2), Dense("odd.values", size=1)],
    ring=Ring(64, fraction_bits=8),
)
ROWS = np.array([1, 5])


def encoded(**arrays: object) -> dict[str, list[int]]:
    """By block, the ring integers that a file's arrays become."""
    file = {name.replace("_", "."): np.asarray(array) for name, array in arrays.items()}
    sparse, dense = encoded_updates(TASK, updates_from(TASK, file))
    found = {TASK.sparse(index).name: elements for index, (_, elements) in sparse.items()}
    found |= {block.name: dense[index] for index, block in TASK.dense_blocks() if index in dense}
    return {name: TASK.ring.to_integers(elements).reshape(-1).tolist() for name, elements in found.items()}


def test_integers_are_numbers_unless_the_file_says_that_they_are_elements() -> None:
    numbers = encoded(items_rows=ROWS, items_values=[[1, 2], [3, 4]], head=np.array([1, -1]))
    assert numbers == {"items": [256, 512, 768, 1024], "head": [256, -256]}
    assert numbers == encoded(items_rows=ROWS, items_values=[[1.0, 2.0], [3.0, 4.0]], head=[1.0, -1.0])
    elements = encoded(items_rows=ROWS, items_elements=[[1, 2], [3, 4]], head_elements=np.array([1, -1]))
    assert elements == {"items": [1, 2, 3, 4], "head": [1, -1]}


def test_a_block_may_be_called_what_it_likes() -> None:
    assert encoded(odd_values=[1]) == {"odd.values": [256]}


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"items_rows": ROWS, "items_values": [[1, 1]] * 2, "items_elements": [[1, 1]] * 2}, "both items.values and"),
        ({"head": [1, 1], "head_elements": [1, 1]}, "'head' has both head and head.elements; one of them expected"),
        ({"items_values": [[1, 1]] * 2}, "needs both items.rows and items.values"),
        ({"items_rows": ROWS}, "needs both items.rows and items.values"),
        ({"items": [[1, 1]] * 2, "items_rows": ROWS}, "needs both items.rows and items.values"),
        ({"head": [1, 1], "head_rows": [1, 2]}, "'head' is dense and needs head alone, without rows"),
        ({"head_elements": [0.5, 0.5]}, "an array of integers expected, got dtype float64"),
        ({"tail_elements": [1, 1]}, "has no block 'tail'"),
    ],
)
def test_a_file_that_leaves_something_open_is_refused(arrays: dict[str, object], words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        encoded(**arrays)


@pytest.mark.parametrize(("protocol", "does"), [("psr", "only serve retrievals"), ("psu", "only find a union")])
def test_a_task_without_updates_takes_no_file_whatever_it_holds(protocol, does) -> None:
    width = {"width": 2} if protocol == "psr" else {}
    task = Task(name="other", protocol=protocol, blocks=[Sparse("items", rows=300, select=4, **width)], max_clients=99)
    with pytest.raises(MisuseError, match=f"the rounds of task 'other' {does}: nothing is submitted"):
        updates_from(task, {"rows": np.zeros(1)})
