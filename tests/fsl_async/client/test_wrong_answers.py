"""What a client accepts of two servers' answers: the rows of the honest server's model, and nothing else."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from fsl_async import Ring, Sparse, Task, WrongAnswerError
from fsl_async.bin_count import planned
from fsl_async.client.planting import ClientTrees
from fsl_async.client.upload import read_answers
from fsl_async.geometry import geometry_of
from fsl_async.server.retrieval import PermutedModel, Query
from fsl_async.wire.answer import AnswerLayout
from fsl_async.wire.public_part import ForestKey, Part
from tests.support import reference_tagging
from tests.support.cases import MANY
from tests.support.rounds import THREADS, Round, run

WIDTHS = [1, 7, 8, 9, 63, 65, 1152]
ANNA = [3, 1, 40]


def task_of(width: int, rows: int = 50, *, second: bool = False, **changes) -> Task:
    blocks = [Sparse("items", rows=rows, select=min(rows, 6), width=width, stash=1)]
    if second:
        blocks.append(Sparse("words", rows=rows, select=min(rows, 6), width=width))
    return Task(name="answers", blocks=blocks, ring=Ring(64), min_clients=2, max_clients=7, **changes)


class Asked:
    """One retrieval, and the honest answers of both servers."""

    def __init__(self, task: Task, rows: dict[str, list[int]], seed: int = 1) -> None:
        numbers = np.random.default_rng(seed)
        self.model = {
            block.name: numbers.integers(1, 256, (block.rows, block.width), dtype=np.uint8)
            for _, block in task.sparse_blocks()
        }
        self.round = Round(task, self.model, seed)
        self.config = self.round.config
        self.client_trees = self.round.plant(rows)
        self.part = self.round.query_part(self.client_trees)
        self.answers = self.answered(0), self.answered(1)
        widths = {index: block.width for index, block in task.sparse_blocks()}
        self.layout = AnswerLayout.of(self.config.shape, widths)

    def answered(
        self, server: int, model=None, part: Part | None = None, client_trees: ClientTrees | None = None
    ) -> bytes:
        """What a server answers, perhaps of another model, another part, or other trees."""
        shelves = PermutedModel(self.config, server, model or self.model)
        query = Query((client_trees or self.client_trees).seeds.msk[server], part or self.part)
        work = shelves.begin([query], THREADS)
        run(work.selecting)
        run(work.answering)
        return work.finish()[0].tobytes()

    def read(self, first: bytes | None = None, second: bytes | None = None):
        given = [own if other is None else other for own, other in zip(self.answers, (first, second), strict=True)]
        return read_answers(self.config, self.client_trees, (memoryview(given[0]), memoryview(given[1])))

    def refuses(self, first: bytes | None = None, second: bytes | None = None) -> bool:
        try:
            self.read(first, second)
        except WrongAnswerError:
            return True
        return False


@lru_cache
def asked(width: int, *, second: bool = False) -> Asked:
    return Asked(task_of(width, second=second), {"items": ANNA})


def flipped(answer: bytes, bit: int) -> bytes:
    changed = bytearray(answer)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("width", WIDTHS)
def test_honest_answers_are_read_and_a_changed_bit_anywhere_is_noticed(width: int) -> None:
    one = asked(width)
    np.testing.assert_array_equal(one.read()[0], one.model["items"][one.client_trees.rows[0]])
    bits = np.random.default_rng(width).choice(8 * len(one.answers[0]), 60)
    bits = {0, 8 * len(one.answers[0]) - 1, *bits.tolist()}
    assert all(one.refuses(flipped(one.answers[0], bit)) for bit in bits)
    assert all(one.refuses(None, flipped(one.answers[1], bit)) for bit in bits)


def test_every_bit_of_a_small_answer_is_covered_dummies_stash_and_tags() -> None:
    one = asked(9)
    assert all(one.refuses(flipped(one.answers[0], bit)) for bit in range(8 * len(one.answers[0])))


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 64])
def test_trees_of_no_levels_are_authenticated(rows: int, width: int) -> None:
    one = Asked(task_of(width, rows), {"items": [0]})
    assert min(forest.depth for forest in geometry_of(one.config.shape, one.config.shape.sparse(0)).forests) >= 0
    np.testing.assert_array_equal(one.read()[0], one.model["items"][one.client_trees.rows[0]])
    assert all(one.refuses(flipped(one.answers[0], bit)) for bit in range(0, 8 * len(one.answers[0]), 5))


@pytest.mark.parametrize("width", [8, 9, 65])
def test_two_bins_swapped(width: int) -> None:
    one = asked(width)
    place = one.layout.rows[ForestKey(0, 0)]
    answers = np.frombuffer(one.answers[0], np.uint8)[place].reshape(-1, width)
    others = [tree for tree in range(len(answers)) if (answers[tree] != answers[0]).any()]
    assert len(others) > 5
    for other in others[:3]:
        rows = np.frombuffer(one.answers[0], np.uint8).copy()
        trees = rows[place].reshape(-1, width)
        trees[[0, other]] = trees[[other, 0]]
        assert one.refuses(rows.tobytes())


def test_another_model_in_one_row_that_nobody_wanted() -> None:
    one = asked(8)
    model = {"items": one.model["items"].copy()}
    unwanted = next(row for row in range(50) if row not in ANNA)
    model["items"][unwanted] ^= 1
    assert one.refuses(one.answered(0, model))
    assert one.refuses(None, one.answered(1, model))


def test_what_both_servers_falsify_alike_is_not_noticed() -> None:
    one = asked(8)
    model = {"items": one.model["items"] ^ 1}
    assert not one.refuses(one.answered(0, model), one.answered(1, model))


def test_a_stale_tag_and_one_of_another_query() -> None:
    one = asked(8)
    place = one.layout.tags[0]
    stale = {"items": one.model["items"] ^ 7}
    for other in (one.answered(0, stale), Asked(task_of(8), {"items": ANNA}, seed=2).answers[0]):
        assert one.refuses(one.answers[0][: place.start] + other[place])


def test_the_tag_of_another_block() -> None:
    one = asked(8, second=True)
    first, second = one.layout.tags[0], one.layout.tags[1]
    head = one.answers[0][: first.start]
    assert one.refuses(head + one.answers[0][second] + one.answers[0][first])
    assert one.refuses(head + one.answers[0][first] + one.answers[0][first])


def test_a_server_that_knew_the_other_s_answer_could_make_every_row_zero() -> None:
    """But it would know the rows already: answers are for the client alone, on its channel to each server."""
    one = asked(8)
    assert not one.refuses(one.answers[1], one.answers[1])


def test_altered_correction_words_are_noticed_where_they_act() -> None:
    """The digest refuses them before an honest server answers; a server that uses them alone is noticed here."""
    one, noticed = asked(8), 0
    for bit in range(0, 8 * len(one.part.data), 41):
        changed = flipped(bytes(one.part.data), bit)
        wrong = one.answered(0, part=Part(one.part.layout, memoryview(changed)))
        assert wrong == one.answers[0] or one.refuses(wrong)
        noticed += wrong != one.answers[0]
    assert noticed > 5


def test_a_change_that_fits_a_guessed_key_passes_for_that_key_alone() -> None:
    """Whoever knew Δ could change a row and its tag together: that is all that the check rests on."""
    one = asked(8)
    place, keys = one.layout.tags[0], keys_of(one)
    change = 0x1234

    def spoilt(tree: int, key: int) -> bytes:
        answer = np.frombuffer(one.answers[0], np.uint8).copy()
        answer[8 * tree : 8 * tree + 8] ^= np.frombuffer(change.to_bytes(8, "little"), np.uint8)
        product = reference_tagging.reduce(reference_tagging.multiply(key, change))
        answer[place] ^= np.frombuffer(product.to_bytes(8, "little"), np.uint8)
        return answer.tobytes()

    assert not one.refuses(spoilt(3, int(keys[3])))
    assert one.refuses(spoilt(3, int(keys[3]) ^ 1))
    assert one.refuses(spoilt(3, int(keys[4])))
    assert one.refuses(spoilt(3, 0))
    assert one.refuses(spoilt(3, 2**64 - 1))


def keys_of(one: Asked) -> np.ndarray:
    first, second = one.client_trees.planted[ForestKey(0, 0)].leaves
    return first[:, 1] ^ second[:, 1]


def test_it_is_noticed_as_often_in_occupied_bins_as_in_dummies() -> None:
    one = asked(8)
    item = one.client_trees.planted[ForestKey(0, 0)].item
    refused = np.array([one.refuses(flipped(one.answers[0], 64 * tree + 5)) for tree in range(len(item))])
    assert (item >= 0).any()
    assert (item < 0).any()
    assert refused[item >= 0].all()
    assert refused[item < 0].all()


def test_every_tree_has_a_key_of_its_own() -> None:
    keys = keys_of(asked(8))
    assert len(set(keys.tolist())) == len(keys)
    assert keys.all()


def test_leaves_over_several_rows_have_no_tag() -> None:
    task = planned(task_of(1, 5000, security="semi-honest"))
    forests = geometry_of(task, task.sparse(0)).forests
    assert forests[0].positions > 1
    assert AnswerLayout.of(task, {0: 1}).tags == {}
    one = Asked(task, {"items": ANNA})
    np.testing.assert_array_equal(one.read()[0], one.model["items"][one.client_trees.rows[0]])


def test_every_word_of_every_block_is_compared_before_an_error(monkeypatch) -> None:
    """The time that a check takes must not tell which block is wrong."""
    from fsl_async import kernels

    one, compared = asked(8, second=True), []
    answers_match = kernels.answers_match

    def watched(keys, answers, tags) -> bool:
        compared.append(len(keys))
        return answers_match(keys, answers, tags)

    monkeypatch.setattr(kernels, "answers_match", watched)
    assert one.refuses(flipped(one.answers[0], 3))
    assert len(compared) == 2


def test_a_seed_of_another_query_is_noticed() -> None:
    one = asked(8)
    other = replace(one.client_trees, seeds=one.round.plant({"items": ANNA}).seeds)
    assert one.refuses(one.answered(0, client_trees=other))


def tampered(one: Asked, rng: np.random.Generator) -> bytes:
    """An answer in which a random mask is over one byte, some, or all."""
    answer = np.frombuffer(one.answers[0], np.uint8).copy()
    place = rng.choice(len(answer), rng.choice((1, 2, 16, len(answer))), replace=False)
    answer[place] ^= rng.integers(1, 256, len(place), dtype=np.uint8)
    return answer.tobytes()


@pytest.mark.parametrize("tries", [200, pytest.param(2_000 * MANY, marks=pytest.mark.slow)])
def test_no_tampered_answer_is_accepted_and_every_honest_one_is(tries: int) -> None:
    rng = np.random.default_rng(tries)
    one = asked(9)
    assert sum(not one.refuses(tampered(one, rng)) for _ in range(tries)) == 0
    honest = 0
    for start in range(0, tries, 16):
        all_trees = [
            one.round.plant({"items": rng.choice(50, 3, replace=False)}) for _ in range(min(16, tries - start))
        ]
        honest += len(one.round.retrieve(all_trees))  # raises where one is refused
    assert honest == tries
