"""Rounds of two servers against the same training in the clear: rows retrieved, trained and submitted."""

import numpy as np

from fsl_async import Ring, Task
from fsl_async.learning import ErrorFeedback, MegaElements, StateMapping, Table, distinct_rows, frequent_rows
from parties import simulate

NAMES = ("ada", "bob", "cy")
RING = Ring(64, fraction_bits=24)


def on_the_grid(task: Task, values: np.ndarray) -> np.ndarray:
    return task.ring.decode(task.ring.encode(values, task.largest_integer))


async def test_a_weighted_mean_of_an_embedding_and_the_layers_behind_it() -> None:
    rng = np.random.default_rng(2)
    state = {
        "embedding.weight": rng.normal(size=(400, 6)).astype(np.float32),
        "out.weight": rng.normal(size=(2, 6)).astype(np.float32),
        "out.bias": rng.normal(size=2).astype(np.float64),
        "steps": np.array(3),
    }
    mapping = StateMapping.of(state, [Table("embedding.weight", select=12)], local=["steps"], examples="examples")
    task = Task(
        name="words",
        blocks=mapping.blocks,
        ring=RING,
        apply="weighted-mean",
        weights="examples",
        min_clients=2,
        max_clients=10,
    )
    mapping.check(task)
    clear = {name: array.astype(np.float64) for name, array in mapping.model(state).items()}
    dtypes = {name: array.dtype for name, array in mapping.model(state).items()}

    def train(batch: np.ndarray, rows: np.ndarray, held: np.ndarray, rest: np.ndarray):
        """A step on the rows of a batch; of each, as much as it occurs there."""
        counts = (batch.reshape(-1)[:, None] == rows).sum(axis=0)
        return held * np.float32(0.5) * counts[:, None], 0.25 * rest

    async with simulate(task, mapping.model(state), seed=3) as net:
        for _ in range(3):
            sums = {"embedding.weight": np.zeros((400, 6)), "rest": np.zeros(14)}
            examples = 0
            for name in NAMES:
                batch = (rng.zipf(1.4, size=(5, 4)) * 7) % 400
                picked = frequent_rows(batch, task.block("embedding.weight"))

                async with net.client(name) as client:
                    got = await client.retrieve({"embedding.weight": picked.rows, "rest": ...})
                    assert mapping.unpack("rest", got["rest"])["out.bias"].dtype == np.float64
                    changed, rest = train(batch, picked.rows, got["embedding.weight"], got["rest"])
                    update = {"embedding.weight": (picked.rows, changed.astype(np.float64)), "rest": rest}
                    update = mapping.weighted(update, len(batch))
                    mapping.fits(update, task)
                    await client.submit(update)

                examples += len(batch)
                now = {block: array.astype(dtypes[block]) for block, array in clear.items()}
                changed, rest = train(batch, picked.rows, now["embedding.weight"][picked.rows], now["rest"])
                sums["embedding.weight"][picked.rows] += on_the_grid(task, changed.astype(np.float64) * len(batch))
                sums["rest"] += on_the_grid(task, rest * len(batch))
            await net.finish_round()
            for block, array in sums.items():
                clear[block] = (clear[block] + array / examples).astype(dtypes[block]).astype(np.float64)
            for block, array in net.model.items():
                assert array.tobytes() == clear[block].astype(dtypes[block]).tobytes()

        learnt = mapping.state(net.model, state)
        assert learnt["steps"] == 3
        assert {name: (array.dtype, array.shape) for name, array in learnt.items()} == {
            name: (array.dtype, array.shape) for name, array in state.items()
        }


async def test_a_network_in_rows_of_sixteen_with_error_feedback() -> None:
    rng = np.random.default_rng(4)
    state = {
        "conv.weight": rng.normal(size=(16, 3, 5, 5)).astype(np.float32),
        "conv.bias": np.zeros(16, np.float32),
        "fc.weight": rng.normal(size=(10, 37)).astype(np.float32),
    }
    mapping = StateMapping.of(state, [MegaElements("weights", width=16, select=5)])
    task = Task(
        name="network", blocks=mapping.blocks, ring=RING, updates="any", apply="mean", min_clients=2, max_clients=10
    )
    secure = {name: ErrorFeedback() for name in NAMES}
    plain = {name: ErrorFeedback() for name in NAMES}
    clear = mapping.model(state)["weights"]

    def train(before: dict[str, np.ndarray], number: int, name: str) -> dict[str, np.ndarray]:
        own = np.random.default_rng([number, len(name)])
        return {tensor: array + own.laplace(size=array.shape).astype(np.float32) for tensor, array in before.items()}

    async with simulate(task, mapping.model(state), seed=5) as net:
        for number in range(4):
            total = np.zeros(clear.shape)
            for name in NAMES:
                async with net.client(name) as client:
                    before = mapping.state(await client.retrieve({"weights": ...}))
                    update = mapping.update(before, train(before, number, name))
                    sent = secure[name].compress(update, task)
                    receipt = await client.submit(sent.update)
                    secure[name] = sent.feedback_after(receipt)

                before = mapping.state({"weights": clear})
                sent = plain[name].compress(mapping.update(before, train(before, number, name)), task)
                rows, values = sent.update["weights"]
                assert len(rows) == 5
                total[rows] += values
                plain[name] = sent.feedback
            await net.finish_round()
            clear = (clear.astype(np.float64) + total / len(NAMES)).astype(np.float32)
            assert net.model["weights"].tobytes() == clear.tobytes()
    for name in NAMES:
        left, right = secure[name].arrays(), plain[name].arrays()
        assert {key: array.tobytes() for key, array in left.items()} == {
            key: array.tobytes() for key, array in right.items()
        }


async def test_rows_outside_of_a_union_are_left_out_and_sent_in_a_later_round() -> None:
    state = {"embedding.weight": np.zeros((60, 2), np.float32)}
    mapping = StateMapping.of(state, [Table("embedding.weight", select=4, block="words")])
    task = Task(
        name="words", blocks=mapping.blocks, ring=RING, updates="any", alignment="union", min_clients=2, max_clients=10
    )
    change = {"words": (np.array([3, 50]), np.array([[1.0, 1.0], [2.0, 2.0]]))}

    async with simulate(task, mapping.model(state), seed=6) as net:
        for name in ("ada", "bob"):
            async with net.client(name) as client:
                await client.unite({"words": distinct_rows([[3, 4], [4, 3]], task.block("words"))})
        await net.finish_union()

        async with net.client("ada") as client:
            sent = ErrorFeedback().compress(change, task)
            receipt = await client.submit(sent.update)
            feedback = sent.feedback_after(receipt)
        async with net.client("bob") as client:
            await client.submit({})
        outcome = await net.finish_round()

        assert receipt.left_out == {"words": [50]}
        assert outcome.update["words"].sum() == 2
        rows, values = feedback.residuals["words"]
        assert (rows.tolist(), values.tolist()) == ([50], [[2.0, 2.0]])
        assert feedback.compress({}, task).update["words"][0].tolist() == [50]
