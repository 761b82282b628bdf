"""Held tables compute what PyTorch's own compute from the same rows, bit for bit, and refuse every other id."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="`make learn` installs PyTorch")

from torch import nn  # noqa: E402

from fsl_async import MisuseError  # noqa: E402
from fsl_async.learning.pytorch import (  # noqa: E402
    HeldEmbedding,
    HeldEmbeddingBag,
    RowNotRetrievedError,
    StaleOptimizerError,
)

ROWS, WIDTH = 60, 7
HELD = [41, 3, 0, 17, 58, 20, 5]  # in the order in which they were retrieved
IDS = torch.tensor([[3, 17, 17, 5], [58, 0, 3, 41]])


def table(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(ROWS, WIDTH)).astype(np.float32)


def pair(plain, held, **options):
    """PyTorch's module with the whole table, and ours with some rows of it."""
    whole, ours = plain(ROWS, WIDTH, **options), held(ROWS, WIDTH, table="words", **options)
    with torch.no_grad():
        whole.weight.copy_(torch.from_numpy(table()))
        if options.get("padding_idx") is not None:
            whole.weight[options["padding_idx"]] = 0
    assert ours.load(HELD, whole.weight[HELD]) == 0.0
    return whole, ours


def same_rows(whole, ours) -> None:
    assert torch.equal(whole.weight[torch.from_numpy(ours.rows)], ours.values())


def train(module, calls, make_optimizer, steps=5):
    """Some steps, and what each returned."""
    optimizer = make_optimizer(module.parameters())
    returned = []
    for step in range(steps):
        optimizer.zero_grad()
        out = module(*calls[step % len(calls)])
        returned.append(out.detach().clone())
        (out.square() * torch.arange(1.0, 1 + out.shape[-1])).sum().backward()
        optimizer.step()
    return returned


OPTIMIZERS = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.05),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda weights: torch.optim.Adam(weights, lr=0.01),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=0.01, weight_decay=0.1),
    "adagrad": lambda weights: torch.optim.Adagrad(weights, lr=0.1),
}
SPARSE = {
    "sgd": OPTIMIZERS["sgd"],
    "adam": lambda weights: torch.optim.SparseAdam(weights, lr=0.01),
    "adagrad": OPTIMIZERS["adagrad"],
}
EMBEDDINGS = [
    {},
    {"padding_idx": 5},
    {"padding_idx": -ROWS},
    {"max_norm": 0.7},
    {"max_norm": 0.7, "norm_type": 1.0},
    {"scale_grad_by_freq": True},
]
BAGS = [
    *({"mode": mode} for mode in ("sum", "mean", "max")),
    *({"mode": mode, "padding_idx": 3} for mode in ("sum", "mean", "max")),
    {"mode": "sum", "max_norm": 0.7},
    {"mode": "mean", "scale_grad_by_freq": True},
]


@pytest.mark.parametrize("options", EMBEDDINGS, ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_embedding_learns_the_same_rows_bit_for_bit(options, optimizer):
    whole, ours = pair(nn.Embedding, HeldEmbedding, **options)
    calls = [(IDS,), (IDS[:1, 1:],), (torch.tensor(41),), (IDS.t(),), (IDS.to(torch.int32),)]
    expected = train(whole, calls, OPTIMIZERS[optimizer])
    assert all(map(torch.equal, train(ours, calls, OPTIMIZERS[optimizer]), expected))
    same_rows(whole, ours)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of the optimizer's own tensors
@pytest.mark.parametrize("options", EMBEDDINGS[:4], ids=str)
@pytest.mark.parametrize("optimizer", SPARSE)
def test_sparse_gradients_list_the_touched_rows_and_learn_the_same(options, optimizer):
    whole, ours = pair(nn.Embedding, HeldEmbedding, sparse=True, **options)
    calls = [(IDS,), (IDS[1:, :2],)]
    expected = train(whole, calls, SPARSE[optimizer])
    assert all(map(torch.equal, train(ours, calls, SPARSE[optimizer]), expected))
    assert ours.weight.grad.is_sparse
    same_rows(whole, ours)


@pytest.mark.parametrize("options", BAGS, ids=str)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("last", [False, True], ids=["", "last offset"])
def test_a_bag_learns_the_same_rows_bit_for_bit(options, optimizer, last):
    whole, ours = pair(nn.EmbeddingBag, HeldEmbeddingBag, include_last_offset=last, **options)
    flat = IDS.reshape(-1)
    calls = [(IDS,), (flat, torch.tensor([0, 0, 3, 8])), (flat.to(torch.int32), torch.tensor([0, 8]).to(torch.int32))]
    expected = train(whole, calls[last:], OPTIMIZERS[optimizer])
    assert all(map(torch.equal, train(ours, calls[last:], OPTIMIZERS[optimizer]), expected))
    same_rows(whole, ours)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_bag_takes_a_weight_for_every_id(sparse):
    whole, ours = pair(nn.EmbeddingBag, HeldEmbeddingBag, mode="sum", sparse=sparse, padding_idx=0)
    weights = torch.rand(2, 4, generator=torch.Generator().manual_seed(3))
    calls = [(IDS, None, weights), (IDS.reshape(-1), torch.tensor([0, 5]), weights.reshape(-1))]
    expected = train(whole, calls, OPTIMIZERS["sgd"])
    assert all(map(torch.equal, train(ours, calls, OPTIMIZERS["sgd"]), expected))
    same_rows(whole, ours)


def test_ids_of_any_layout_and_no_ids_at_all():
    whole, ours = pair(nn.Embedding, HeldEmbedding)
    strided = torch.arange(120).reshape(2, 60)[:, torch.tensor(HELD)].t()[::2] % 60
    assert not strided.is_contiguous()
    for ids in (strided, strided[:, 0], IDS.reshape(2, 2, 2), IDS[:0], torch.empty((3, 0), dtype=torch.int64)):
        assert torch.equal(ours(ids), whole(ids))
    bags, ours = pair(nn.EmbeddingBag, HeldEmbeddingBag, mode="sum")
    nothing = torch.empty(0, dtype=torch.int64), torch.tensor([0, 0])
    assert torch.equal(ours(*nothing), bags(*nothing))
    assert ours(torch.empty((0, 4), dtype=torch.int64)).shape == (0, WIDTH)


# ---- rows


def test_only_the_retrieved_rows_are_held():
    ours = HeldEmbedding(1_000_000_000, 4, table="goods")
    assert ours.weight.shape == (0, 4)
    ours.load([999_999_999, 5], np.ones((2, 4), np.float32))
    assert ours.weight.shape == (2, 4)
    assert ours.rows.tolist() == [5, 999_999_999]
    assert sum(tensor.numel() for tensor in (*ours.parameters(), *ours.buffers())) == 10
    assert str(ours) == "HeldEmbedding(1000000000, 4, table='goods', held=2)"


def test_the_row_of_the_padding_is_zero_unless_it_was_retrieved():
    ours = HeldEmbedding(ROWS, WIDTH, padding_idx=9)
    ours.load(HELD, table()[HELD])
    assert not ours(torch.tensor([9])).any()
    assert len(ours.values()) == len(HELD)
    assert 9 not in ours.rows
    train(ours, [(torch.tensor([9, 3]),)], OPTIMIZERS["adamw"])
    assert not ours(torch.tensor([9])).any()
    ours.load([9, 3], table()[[9, 3]])
    assert ours.rows.tolist() == [3, 9]
    assert torch.equal(ours(torch.tensor([9])), torch.from_numpy(table()[[9]]))


def test_a_row_that_was_not_retrieved_is_named():
    _, ours = pair(nn.Embedding, HeldEmbedding)
    with pytest.raises(
        RowNotRetrievedError, match=r"table 'words': row 4 was not retrieved; it holds 7 of 60 rows"
    ) as e:
        ours(torch.tensor([3, 4, 4]))
    assert (e.value.table, e.value.rows) == ("words", (4,))
    again = pickle.loads(pickle.dumps(e.value))
    assert (str(again), again.rows) == (str(e.value), (4,))
    with pytest.raises(RowNotRetrievedError, match=r"rows 1, 2, 4, 6, 7, … \(6 of them\) were not retrieved"):
        ours(torch.tensor([1, 2, 4, 6, 7, 8, 3]))
    with pytest.raises(RowNotRetrievedError, match="row 3 was"):
        HeldEmbeddingBag(ROWS, WIDTH)(torch.tensor([[3]]))


@pytest.mark.parametrize("bad", [-1, 60, 2**40])
def test_an_id_outside_the_table_is_named(bad):
    _, ours = pair(nn.EmbeddingBag, HeldEmbeddingBag)
    with pytest.raises(MisuseError, match=f"table 'words': id {bad} is outside the table, whose ids are 0 to 59"):
        ours(torch.tensor([[3, bad]]))
    assert ours.holds(torch.tensor([[3, bad, 4]])).tolist() == [[True, False, False]]


@pytest.mark.parametrize(
    ("rows", "values", "expected"),
    [
        ([1, 60], np.zeros((2, WIDTH)), "id 60 is outside the table"),
        ([1, 1], np.zeros((2, WIDTH)), "row 1 comes twice"),
        ([1.0], np.zeros((1, WIDTH)), "row ids in one dimension expected, got float64"),
        ([[1]], np.zeros((1, WIDTH)), "row ids in one dimension expected"),
        ([1], np.zeros((2, WIDTH)), r"values of shape \(1, 7\) expected for 1 rows, got \(2, 7\)"),
        ([1], np.zeros((1, WIDTH), int), "floats of 16, 32 or 64 bits expected, got int64"),
        ([2, 1], np.full((2, WIDTH), np.nan), "table 'words', row 1: nan, a finite number expected"),
        ([1], np.full((1, WIDTH), 1e300), r"row 1: 1e\+300, a finite number expected; torch.float32 does not hold it"),
        ([1], torch.zeros((1, WIDTH), device="meta"), "'words' is on the device 'meta'"),
        ([1], torch.zeros((1, WIDTH), dtype=torch.complex64), "'words' is of torch.complex64"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_held_is_refused_and_changes_nothing(rows, values, expected):
    whole, ours = pair(nn.Embedding, HeldEmbedding)
    with pytest.raises(MisuseError, match=expected):
        ours.load(rows, values)
    same_rows(whole, ours)
    assert torch.equal(ours(IDS), whole(IDS))


@pytest.mark.parametrize("ids", [torch.tensor([1.0]), torch.tensor([True]), torch.tensor([3], dtype=torch.uint8)])
def test_ids_are_integers(ids):
    _, ours = pair(nn.Embedding, HeldEmbedding)
    with pytest.raises(MisuseError, match="table 'words': ids of int32 or int64 expected"):
        ours(ids)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"device": "meta"}, "tensor 'w' is on the device 'meta'"),
        ({"dtype": torch.int64}, "tensor 'w' is of torch.int64"),
        ({"dtype": torch.complex64}, "tensor 'w' is of torch.complex64"),
        ({"padding_idx": 60}, "table 'w': padding_idx 60 is outside the table of 60 rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_table_that_could_not_work_is_refused(options, expected):
    for kind in (HeldEmbedding, HeldEmbeddingBag):
        with pytest.raises(MisuseError, match=expected):
            kind(ROWS, WIDTH, table="w", **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_conversions_say_how_much_they_round(dtype):
    ours = HeldEmbedding(ROWS, WIDTH, dtype=dtype)
    exact = np.arange(2 * WIDTH).reshape(2, WIDTH) / 8
    assert ours.load([1, 2], exact) == 0.0
    assert ours.weight.dtype == dtype
    assert ours.values().double().numpy().tolist() == exact.tolist()
    rounded = ours.load([1], np.full((1, WIDTH), 1 / 3))
    assert rounded == abs(1 / 3 - ours.values()[0, 0].item())
    assert (rounded > 0) == (dtype != torch.float64)


# ---- rounds


def test_other_rows_fit_an_old_loss_and_an_optimizer_without_a_state():
    whole, ours = pair(nn.Embedding, HeldEmbedding)
    weight, optimizer = ours.weight, torch.optim.SGD(ours.parameters(), lr=0.5)
    kept = ours(IDS).sum()  # its graph lives on
    ours.load([7, 8], whole.weight[[7, 8]])
    assert ours.weight is weight
    assert weight.grad is None
    ours(torch.tensor([8])).sum().backward()
    optimizer.step()
    assert torch.equal(ours.values()[1], whole.weight[8] - 0.5)
    assert torch.equal(ours.values()[0], whole.weight[7])
    assert kept.requires_grad


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_moments_of_other_rows_are_refused(name):
    _, ours = pair(nn.Embedding, HeldEmbedding)
    optimizer = OPTIMIZERS[name](ours.parameters())
    for _ in range(2):
        ours(IDS).sum().backward()
        optimizer.step()
    ours.load(HELD, table(2)[HELD])
    ours(IDS).sum().backward()
    before = ours.values().clone()
    with pytest.raises(
        StaleOptimizerError, match=r"table .words.: this \w+ has moments of the rows that were held before"
    ):
        optimizer.step()
    assert torch.equal(ours.values(), before)
    OPTIMIZERS[name](ours.parameters()).step()
    assert not torch.equal(ours.values(), before)


def test_a_state_dict_goes_back_to_its_own_rows_alone():
    _, ours = pair(nn.Embedding, HeldEmbedding)
    saved = copy.deepcopy(nn.Sequential(ours).state_dict())
    assert list(saved) == ["0.weight"]
    train(ours, [(IDS,)], OPTIMIZERS["sgd"])
    nn.Sequential(ours).load_state_dict(saved)
    assert torch.equal(ours.values(), torch.from_numpy(table()[sorted(HELD)]))
    ours.load([1, 2, 3, 4, 5, 6, 7], table()[:7])
    with pytest.raises(MisuseError, match="saved when other rows were held"):
        nn.Sequential(ours).load_state_dict(saved)


def test_a_copy_is_a_table_of_its_own():
    whole, ours = pair(nn.Embedding, HeldEmbedding)
    twin = copy.deepcopy(ours)
    train(twin, [(IDS,)], OPTIMIZERS["adam"])
    same_rows(whole, ours)
    twin.load([1], whole.weight[[1]])
    assert torch.equal(ours(IDS), whole(IDS))


def test_a_frozen_table_stays_as_it_is():
    whole, ours = pair(nn.Embedding, HeldEmbedding)
    ours.weight.requires_grad_(False)
    assert not ours(IDS).requires_grad
    ours.load([2], whole.weight[[2]])
    assert not ours.weight.requires_grad


def test_the_copy_of_a_table_is_watched_too() -> None:
    ours = HeldEmbedding(10, 2, table="words")
    ours.load([1, 2], np.ones((2, 2)))
    ours = copy.deepcopy(ours)
    optimizer = torch.optim.Adam(ours.parameters())
    ours(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    ours.load([5, 6], np.ones((2, 2)))
    ours(torch.tensor([5, 6])).sum().backward()
    with pytest.raises(StaleOptimizerError):
        optimizer.step()


def test_a_state_that_is_kept_under_another_parameter_is_found() -> None:
    ours, head = HeldEmbedding(10, 2, table="words"), nn.Linear(2, 1)
    ours.load([1, 2], np.ones((2, 2)))
    optimizer = torch.optim.LBFGS([*head.parameters(), *ours.parameters()])

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = (head(ours(torch.from_numpy(ours.rows))) ** 2).sum()
        value.backward()
        return value

    optimizer.step(loss)
    ours.load([5, 6], np.ones((2, 2)))
    with pytest.raises(StaleOptimizerError):
        optimizer.step(loss)
