"""The demo's learning task, in the clear: its bounds, its determinism, and that it learns."""

import zlib
from itertools import chain
from pydoc_data.topics import topics

import numpy as np
import pytest

from fsl_async import MisuseError
from parties.commands.demo import corpus as corpus_module
from parties.commands.demo.corpus import CHAPTERS, Corpus, load
from parties.commands.demo.learner import (
    LARGEST_DELTA,
    WORDS,
    Learner,
    accuracy,
    initial_model,
    majority,
    telling_words,
)
from parties.commands.demo.run import learn
from tests.support.cases import often

ROUNDS = 6


def trained(corpus: Corpus, rounds: int = ROUNDS) -> dict[str, np.ndarray]:
    return learn(corpus, rounds, clear=True).model


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load(clients=8, seed=1)


@pytest.mark.parametrize("division", often(2, [(8, 0), (20, 2), (12, 1), (8, 3)]))
def test_the_chapter_of_a_held_out_excerpt_is_named_far_more_often(division: tuple[int, int]) -> None:
    clients, seed = division
    corpus = load(clients, seed)
    before = accuracy(initial_model(), corpus.held_out)
    after = accuracy(trained(corpus), corpus.held_out)
    assert max(before, majority(corpus)) < 0.40, f"{clients=} {seed=}"
    assert after > max(before, majority(corpus)) + 0.25, f"{clients=} {seed=} {before=} {after=}"
    assert after > 0.60, f"{clients=} {seed=} {before=} {after=}"


def test_many_clients_with_little_text_each_still_learn() -> None:
    corpus = load(clients=64, seed=0)
    assert accuracy(trained(corpus), corpus.held_out) > majority(corpus) + 0.2


def test_it_is_the_pooled_text_that_teaches() -> None:
    corpus = load(clients=20, seed=0)
    together = accuracy(trained(corpus), corpus.held_out)
    alone = Corpus(shards=corpus.shards[:2], held_out=corpus.held_out)
    assert accuracy(trained(alone), corpus.held_out) < together - 0.1


@pytest.mark.parametrize("clients", [1, 8, 64])
def test_wanted_rows_are_sorted_distinct_and_within_the_selection(clients: int) -> None:
    for shard in load(clients, seed=2).shards:
        learner = Learner(shard, clients)
        for round_number in range(2 * ROUNDS):
            rows = learner.wanted_rows(round_number)
            assert rows.dtype == np.uint32
            assert 0 < len(rows) <= WORDS.select
            assert (np.diff(rows.astype(np.int64)) > 0).all()
            assert rows[-1] < WORDS.rows


def test_rounds_go_through_all_of_a_clients_words_and_change_its_rows(corpus: Corpus) -> None:
    learner = Learner(corpus.shards[0], 8)
    wanted = [set(learner.wanted_rows(round_number).tolist()) for round_number in range(len(corpus.shards[0]))]
    assert wanted[0] != wanted[1]
    words = {word for excerpt in corpus.shards[0] for word in excerpt.words}
    assert set().union(*wanted) == {zlib.crc32(word.encode()) % WORDS.rows for word in words}


def test_deltas_are_bounded_even_from_a_hostile_model(corpus: Corpus) -> None:
    generator = np.random.default_rng(3)
    learner = Learner(corpus.shards[0], clients=1)
    rows = learner.wanted_rows(0)
    for scale in (0.0, 1.0, 1e6):
        values = generator.normal(scale=scale, size=(len(rows), WORDS.width)).astype(np.float32)
        words, priors = learner.train(0, rows, values, np.zeros(WORDS.width, dtype=np.float32))
        assert words.shape == values.shape
        assert np.isfinite(words).all()
        assert max(abs(words).max(), abs(priors).max()) <= LARGEST_DELTA


def test_training_leaves_what_was_retrieved_untouched(corpus: Corpus) -> None:
    learner, model = Learner(corpus.shards[0], 8), initial_model()
    rows = learner.wanted_rows(0)
    values = model["words"][rows]
    learner.train(0, rows, values, model["chapters"])
    assert not values.any()
    assert not model["chapters"].any()


def test_a_deferred_row_is_a_word_not_read(corpus: Corpus) -> None:
    learner = Learner(corpus.shards[0], 8)
    kept = np.delete(learner.wanted_rows(0), [0, 7])
    values, priors = np.zeros((len(kept), WORDS.width), np.float32), np.zeros(WORDS.width, np.float32)
    words, _ = learner.train(0, kept, values, priors)
    assert words.shape == values.shape
    assert words.any(axis=1).all()


def test_a_client_without_text_wants_nothing_and_changes_nothing() -> None:
    learner = Learner((), clients=8)
    rows = learner.wanted_rows(3)
    words, priors = learner.train(3, rows, np.zeros((0, WORDS.width), np.float32), np.ones(WORDS.width, np.float32))
    assert rows.shape == (0,)
    assert rows.dtype == np.uint32
    assert words.shape == (0, WORDS.width)
    assert not priors.any()


def test_more_clients_than_stretches_leaves_some_empty_and_the_rest_train() -> None:
    corpus = load(clients=2000, seed=0)
    assert () in corpus.shards
    assert trained(corpus, rounds=1)["words"].any()


def test_nothing_held_out_is_held_by_a_client(corpus: Corpus) -> None:
    held_by_clients = {excerpt.words for excerpt in chain.from_iterable(corpus.shards)}
    assert len(held_by_clients) == sum(map(len, corpus.shards))
    assert held_by_clients.isdisjoint(excerpt.words for excerpt in corpus.held_out)


def test_division_gives_out_every_excerpt_whatever_the_number_of_clients() -> None:
    def everything(corpus: Corpus) -> set[object]:
        return {*chain.from_iterable(corpus.shards), *corpus.held_out}

    few, many = load(clients=2, seed=4), load(clients=30, seed=4)
    assert everything(few) == everything(many)
    assert set(few.held_out) == set(many.held_out)


def test_pages_may_be_missing_and_unknown_ones_are_left_out() -> None:
    pages = {name: text for name, text in topics.items() if name not in {"types", "debugger", "specialnames"}}
    assert load(8, 0, {**pages, "unheard-of": "unheard " * 5000}) == load(8, 0, pages)
    chapters = {excerpt.chapter for excerpt in load(8, 0, pages).held_out}
    assert list(CHAPTERS).index("debugger") not in chapters


def test_a_repeated_paragraph_counts_once() -> None:
    text = " ".join(f"word{number}" for number in range(corpus_module.SHORTEST_EXCERPT))
    pages = {"if": "\n\n".join(f"{text} {n}x" for n in "abcdefgh"), "for": f"{text} ax\n\n{text} bx"}
    corpus = load(1, 0, pages)
    assert sum(map(len, corpus.shards)) + len(corpus.held_out) == 8


def test_a_paragraph_of_any_length_fits_the_selection() -> None:
    endless = " ".join(f"word{number}" for number in range(20_000))
    corpus = load(1, 0, {"if": endless})
    longest = max(len(set(excerpt.words)) for excerpt in corpus.shards[0])
    assert longest < corpus_module.SHORTEST_EXCERPT + corpus_module.LONGEST_PARAGRAPH < WORDS.select


@pytest.mark.parametrize(("clients", "pages"), [(0, topics), (8, {}), (8, {"if": "too short"})])
def test_impossible_divisions_are_refused(clients: int, pages: dict[str, str]) -> None:
    with pytest.raises(MisuseError, match="expected"):
        load(clients, 0, pages)


def test_a_learner_needs_at_least_one_client() -> None:
    with pytest.raises(MisuseError, match="at least one"):
        Learner((), clients=0)


def test_the_words_that_tell_a_chapter_make_sense(corpus: Corpus) -> None:
    telling = telling_words(trained(corpus), corpus, count=10)
    assert list(telling) == list(CHAPTERS)
    assert {"pdb", "debugger"} & set(telling["debugger"])
    assert {"format", "formatting"} & set(telling["string formatting"])
