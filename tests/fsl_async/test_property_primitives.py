"""Private retrieval and secure aggregation against plain indexing and addition, on a hundred random tasks.

The primitives are driven without channels; `test_end_to_end` does the same with whole parties. A failure's seed is in
the test's name.
"""

import numpy as np
import pytest

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.wire.public_part import Trees
from tests.support.cases import in_turn, often, one_in
from tests.support.rounds import Draw, Plaintext, Round, add, in_bytes

SECURITIES = ("verified", "semi-honest")
SEEDS = 9


@pytest.fixture(params=SECURITIES)
def security(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("first", often(1, [0, SEEDS]))
@in_turn("more", range(SEEDS))
def test_rows_and_sums_are_the_plaintext_ones(bits: int, security: str, first: int, more: int) -> None:
    """The seed is the sum of the two numbers that a failure names."""
    seed = first + more
    draw = Draw(seed, bits, security)
    task = draw.task()
    play = Round(task, draw.model(task), seed)
    plaintext = Plaintext(task)
    clients = [(f"client {number}", draw.rows(task)) for number in range(draw.chance.choice((1, 2)))]
    all_trees = [play.plant(rows) for _, rows in clients]
    for (_, rows), found in zip(clients, play.retrieve(all_trees), strict=True):
        assert set(found) == {block.name for _, block in task.sparse_blocks()}
        for name, array in found.items():
            expected = play.model[name][rows.get(name, np.zeros(0, dtype=int))]
            assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
            assert array.tobytes() == expected.tobytes()
    for (client, rows), client_trees in zip(clients, all_trees, strict=True):
        update = draw.update(task, rows)
        plaintext.add(update)
        play.submit(client, client_trees, update, draw.chance.choice((Trees.OWN, Trees.RETRIEVAL)))
    assert in_bytes(play.total()) == plaintext.elements()


@pytest.mark.parametrize(("bits", "security", "rows"), one_in(2, (32, 64, 128), SECURITIES, [1, 2, 3, 4, 5, 8, 9, 17]))
def test_every_row_of_small_blocks_alone_and_together(bits: int, security: str, rows: int) -> None:
    for select in sorted({1, 2, rows // 2, rows} & set(range(1, rows + 1))):
        task = Task(
            name="small",
            blocks=[Sparse("a", rows=rows, select=select, width=1 + rows % 2, stash=rows % 3)],
            ring=Ring(bits),
            security=security,  # type: ignore[arg-type]
            max_clients=1000,
        )
        draw = Draw(rows, bits, security)
        play, plaintext = Round(task, draw.model(task), rows), Plaintext(task)
        choices = [np.arange(start, min(start + select, rows)) for start in range(rows)]
        all_trees = [play.plant({"a": chosen}) for chosen in choices]
        for chosen, found in zip(choices, play.retrieve(all_trees), strict=True):
            assert found["a"].tobytes() == play.model["a"][chosen].tobytes()
        for number, (chosen, client_trees) in enumerate(zip(choices, all_trees, strict=True)):
            update = {"a": (chosen, draw.integers(task, (len(chosen), task.sparse(0).width)))}
            plaintext.add(update)
            play.submit(f"client {number}", client_trees, update)
        assert in_bytes(play.total()) == plaintext.elements()


@in_turn("seed", range(6))
def test_a_session_s_trees_serve_every_epoch(bits: int, security: str, seed: int) -> None:
    draw = Draw(seed, bits, security)
    task = draw.task(selection="fixed")
    play = Round(task, draw.model(task), seed)
    clients = {f"client {number}": draw.rows(task) for number in range(2)}
    all_trees = {client: play.plant(rows) for client, rows in clients.items()}
    for trees in (Trees.OWN, Trees.SESSION, Trees.SESSION):
        plaintext = Plaintext(task)
        for client, rows in clients.items():
            update = draw.update(task, rows)
            plaintext.add(update)
            play.submit(client, all_trees[client], update, trees)
        assert in_bytes(play.total()) == plaintext.elements()
        play.next_epoch()


@in_turn("seed", range(4))
def test_who_is_taken_out_leaves_no_trace(bits: int, security: str, seed: int) -> None:
    """As a server does with a client that was evaluated on arrival and is not on the roster."""
    draw = Draw(seed, bits, security)
    task = draw.task()
    play = Round(task, draw.model(task), seed)
    pairs = []
    for number in range(3):
        rows = draw.rows(task)
        pairs.append(play.submissions(f"client {number}", play.plant(rows), draw.update(task, rows)))
    for pair in pairs:
        play.add(pair)
    for server, aggregate in enumerate(play.aggregates):
        aggregate.negate()
        for pair in pairs[::2]:
            add(aggregate, pair[server])
        aggregate.negate()
    taken_out = [aggregate.share() for aggregate in play.aggregates]
    play.aggregates = play.start()
    play.add(pairs[1])
    assert taken_out == [aggregate.share() for aggregate in play.aggregates]


def test_the_order_of_clients_does_not_matter(bits: int, security: str) -> None:
    draw = Draw(11, bits, security)
    task = draw.task()
    play = Round(task, draw.model(task), 11)
    pairs = []
    for number in range(3):
        rows = draw.rows(task)
        pairs.append(play.submissions(f"client {number}", play.plant(rows), draw.update(task, rows)))
    shares = []
    for order in (pairs, pairs[::-1]):
        play.aggregates = play.start()
        for pair in order:
            play.add(pair)
        shares.append([aggregate.share() for aggregate in play.aggregates])
    assert shares[0] == shares[1]


def test_a_share_alone_tells_nothing_of_the_sum(bits: int) -> None:
    """Every element of a share is masked, also those of rows that one client alone has touched."""
    task = Task(
        name="t",
        blocks=[Sparse("a", rows=64, select=8, width=4), Dense("d", size=64)],
        ring=Ring(bits),
        security="semi-honest",
    )
    play = Round(task, Draw(1, bits, "semi-honest").model(task), 1)
    rows = np.arange(8)
    ones = np.ones((8, 4), dtype=np.int64)
    play.submit("alice", play.plant({"a": rows}), {"a": (rows, ones), "d": np.ones(64, dtype=np.int64)})
    shares = [np.frombuffer(aggregate.share(), dtype=np.uint8) for aggregate in play.aggregates]
    for share in shares:
        assert (share == 0).mean() < 0.05
        assert (share == 1).mean() < 0.05


def test_shapes_do_not_depend_on_rows_or_values(bits: int, security: str) -> None:
    """Nor on whether there are any: an empty selection sends as much."""
    draw = Draw(3, bits, security)
    task = Task(
        name="t",
        blocks=[Sparse("a", rows=500, select=20, width=2, stash=1), Dense("d", size=9)],
        ring=Ring(bits),
        security=security,  # type: ignore[arg-type]
    )
    play = Round(task, draw.model(task), 3)
    sizes = set()
    for rows in ([], [7], list(range(20))):
        client_trees = play.plant({"a": rows})
        values = draw.integers(task, (len(rows), 2))
        for update in ({}, {"a": (rows, values)}):
            first, second = play.submissions("alice", client_trees, update)
            assert (np.frombuffer(first.part.data, dtype=np.uint8) != 0).mean() > 0.9
            sizes.add(
                (len(play.query_part(client_trees).data), len(first.part.data), len(first.dense) + len(second.dense))
            )
    assert len(sizes) == 1


@pytest.mark.parametrize("rows", [2**17, 2**17 - 1])
def test_large_blocks_are_cut_into_pieces(security: str, rows: int) -> None:
    """Enough leaves for several jobs per segment."""
    task = Task(name="t", blocks=[Sparse("a", rows=rows, select=50)], ring=Ring(64), security=security)  # type: ignore[arg-type]
    draw = Draw(5, 64, security)
    play, plaintext = Round(task, draw.model(task), 5), Plaintext(task)
    chosen = draw.numbers.choice(rows, 50, replace=False)
    chosen[0] = rows - 1 if rows - 1 not in chosen else chosen[0]
    client_trees = play.plant({"a": chosen})
    (found,) = play.retrieve([client_trees])
    assert found["a"].tobytes() == play.model["a"][chosen].tobytes()
    update = {"a": (chosen, draw.integers(task, (50, 1)))}
    plaintext.add(update)
    play.submit("alice", client_trees, update)
    assert in_bytes(play.total()) == plaintext.elements()
