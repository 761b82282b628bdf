"""A model that learns on its retrieved rows becomes what the same model becomes with the whole table, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="`make learn` installs PyTorch")

from torch import nn  # noqa: E402

from fsl_async import MisuseError, Ring, Task  # noqa: E402
from fsl_async.learning import ErrorFeedback, MegaElements, Table  # noqa: E402
from fsl_async.learning.pytorch import (  # noqa: E402
    HeldEmbedding,
    HeldEmbeddingBag,
    RowNotRetrievedError,
    StaleOptimizerError,
    hold,
    load_blocks,
    map_model,
    model_blocks,
)
from parties import Retrieved, simulate  # noqa: E402

WORDS, WIDTH, CLASSES = 300, 5, 4
TABLES = [Table("words.weight", select=60, block="items")]
LOCAL = ["*.num_batches_tracked"]


class Classifier(nn.Module):
    """Embedded words, normalised, with dropout."""

    def __init__(self, **options):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0, **options)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.dropout = nn.Dropout(0.3)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids):
        return self.out(self.dropout(self.norm(self.words(ids).mean(dim=1))))


def fresh(kind=Classifier, seed=0, **options):
    torch.manual_seed(seed)
    return kind(**options)


MAPPING = map_model(Classifier(), TABLES, local=LOCAL)


def task(mapping=MAPPING, **options):
    settings = {"ring": Ring(64, fraction_bits=24), "min_clients": 2, "max_clients": 10}
    return Task(name="words", blocks=mapping.blocks, **settings | options)


def batches(seed, count=3, words=40):
    """Sentences of a few of a client's own words, padded, with labels."""
    rng = np.random.default_rng(seed)
    own = rng.choice(np.arange(1, WORDS), words, replace=False)
    ids = np.where(rng.random((count, 8, 6)) < 0.2, 0, rng.choice(own, (count, 8, 6)))
    return list(zip(torch.from_numpy(ids), torch.from_numpy(rng.integers(0, CLASSES, (count, 8))), strict=True))


def train(model, data, make_optimizer, seed):
    """The user's own loop."""
    torch.manual_seed(seed)
    model.train()
    optimizer = make_optimizer(model)
    for ids, labels in data:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(ids), labels).backward()
        optimizer.step()


class Several:
    """Optimizers that step together: one for sparse gradients, one for the rest."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def zero_grad(self):
        for each in self.optimizers:
            each.zero_grad()

    def step(self):
        for each in self.optimizers:
            each.step()


def sparse_and_dense(model):
    rest = [weight for name, weight in model.named_parameters() if not name.startswith("words")]
    return Several(torch.optim.SparseAdam(model.words.parameters(), lr=0.01), torch.optim.Adam(rest, lr=0.01))


OPTIMIZERS = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.5),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    "sparse": sparse_and_dense,
}


def rounded(change):
    return np.rint(change * 2.0**24) / 2.0**24


async def rounds_on_servers(the_task, model, clients, take_part, rounds):
    async with simulate(the_task, model, seed=3) as net:
        for number in range(rounds):
            for name in clients:
                async with net.client(name) as client:
                    await take_part(name, number, client)
            await net.finish_round()
        return net.model


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
async def test_rounds_on_two_servers_equal_federated_averaging_in_the_clear(optimizer):
    """Both sum the rounded changes of three clients; in the clear each of them trains with the whole table."""
    options = {"sparse": optimizer == "sparse"}
    whole = fresh(**options)
    start = model_blocks(whole, MAPPING)
    ours = {name: fresh(seed=9, **options) for name in ("ada", "ben", "cy")}
    submodels = {name: hold(model, MAPPING, task()) for name, model in ours.items()}

    async def take_part(name, number, client):
        data = batches([number, ord(name[0])])
        submodel = submodels[name]
        wanted = submodel.wanted({"items": [ids for ids, _ in data]})
        assert submodel.load(wanted, await client.retrieve(wanted)).keys() >= {"words.weight"}
        assert ours[name].words.weight.shape[0] <= 41, "the rows, and the padding"
        train(ours[name], data, OPTIMIZERS[optimizer], seed=number)
        update = submodel.update()
        assert max(fit.rounding for fit in submodel.fits(update).values()) <= 2.0**-25
        await client.submit(update)

    learnt = await rounds_on_servers(task(), start, ours, take_part, 3)

    clear = {name: array.copy() for name, array in start.items()}
    for number in range(3):
        total = {name: np.zeros(array.shape) for name, array in clear.items()}
        for name in ours:
            plain = fresh(seed=9, **options)
            load_blocks(plain, MAPPING, clear)
            train(plain, batches([number, ord(name[0])]), OPTIMIZERS[optimizer], seed=number)
            for block, after in model_blocks(plain, MAPPING).items():
                total[block] += rounded(after.astype(np.float64) - clear[block].astype(np.float64))
        clear = {name: (array + total[name]).astype(np.float32) for name, array in clear.items()}
    assert {name: array.tobytes() for name, array in learnt.items()} == {
        name: array.tobytes() for name, array in clear.items()
    }
    assert not np.array_equal(learnt["items"], start["items"])


# ---- what a round takes and gives


def held(model=None, mapping=None, **options):
    model = model or fresh()
    mapping = mapping or map_model(model, TABLES, local=LOCAL if isinstance(model, Classifier) else [])
    return model, hold(model, mapping, task(mapping, **options))


def begin_round(submodel, *ids):
    start = model_blocks(fresh(), submodel.mapping)
    wanted = submodel.wanted({"items": list(ids)})
    submodel.load(wanted, {"items": start["items"][wanted["items"]], "rest": start["rest"]})


def loaded(ids=(3, 7, 9), **options):
    model, submodel = held(**options)
    begin_round(submodel, *ids)
    return model, submodel


def test_the_rows_of_all_batches_are_wanted_once_and_the_padding_is_not():
    _, submodel = held()
    wanted = submodel.wanted({"items": [torch.tensor([[5, 0, 9]]), torch.tensor([9, 2], dtype=torch.int32)]})
    assert wanted["items"].tolist() == [2, 5, 9]
    assert wanted["rest"] is ...
    assert submodel.wanted({"items": []})["items"].tolist() == []
    assert submodel.wanted({"items": np.array([[1, 1], [2, 4]])})["items"].tolist() == [1, 2, 4]


def test_more_rows_than_a_client_may_select():
    model, submodel = held()
    ids = torch.arange(1, 101)
    with pytest.raises(MisuseError, match="the batches have 100 distinct rows, and a client selects 60"):
        submodel.wanted({"items": ids})
    often = torch.cat([ids, ids[50:]])
    wanted = submodel.wanted({"items": often}, most_frequent=True)
    assert wanted["items"].tolist() == [*range(1, 11), *range(51, 101)]
    assert model.words.holds(ids).sum() == 0


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ({"items": [300]}, "id 300"),
        ({"items": [-1]}, "id -1"),
        ({"items": [1.5]}, "table 'items': integer ids expected, got float64"),
        ({"items": [(torch.tensor([1]), torch.tensor([2]))]}, "tensors of ids expected, got batches; leave the labels"),
        ({"goods": [1]}, r"the model has no table 'goods'; it has \['items'\]"),
    ],
)
def test_ids_that_no_table_has_are_refused(ids, expected):
    with pytest.raises(MisuseError, match=expected):
        held()[1].wanted(ids)


def test_rows_that_were_deferred_are_not_held():
    start = model_blocks(fresh(), MAPPING)
    model, submodel = held()
    wanted = submodel.wanted({"items": [3, 7]})
    submodel.load(wanted, {"items": start["items"][[3, 7]], "rest": start["rest"]}, {"items": [7]})
    model(torch.tensor([[3], [3]]))
    with pytest.raises(RowNotRetrievedError, match="row 7 was not retrieved"):
        model(torch.tensor([[3], [7]]))
    retrieved = Retrieved()
    retrieved.update(items=start["items"][[3, 7]], rest=start["rest"])
    retrieved.deferred["items"] = np.array([3], dtype=np.uint32)
    submodel.load(wanted, retrieved)
    with pytest.raises(RowNotRetrievedError, match="row 3 was not retrieved"):
        model(torch.tensor([[3], [7]]))


def test_only_rows_that_have_changed_are_submitted():
    model, submodel = loaded()
    assert submodel.update()["items"][0].tolist() == []
    train(model, [(torch.tensor([[3, 0], [9, 9]]), torch.tensor([0, 1]))], OPTIMIZERS["sgd"], 1)
    values = submodel.update()
    assert values["items"][0].tolist() == [3, 9]
    assert values["items"][1].dtype == values["rest"].dtype == np.float64


def test_a_layer_that_is_replaced_after_the_table_was_held_is_the_one_that_learns():
    start = model_blocks(fresh(), MAPPING)
    model, submodel = held()
    model.out = nn.Linear(WIDTH, CLASSES)
    wanted = submodel.wanted({"items": [3]})
    submodel.load(wanted, {"items": start["items"][[3]], "rest": start["rest"]})
    assert torch.equal(model.out.bias, fresh().out.bias)
    model.out.bias = nn.Parameter(model.out.bias.detach() + 0.5)
    assert round(submodel.update()["rest"].sum(), 6) == CLASSES * 0.5
    model.out = nn.Linear(WIDTH, CLASSES + 1)
    with pytest.raises(MisuseError, match=r"tensor 'out.bias' has shape \(5,\), and the mapping has \(4,\)"):
        submodel.update()
    model.words = nn.Embedding(WORDS, WIDTH)
    with pytest.raises(MisuseError, match=r"tensor 'words.weight' is no longer of a held table"):
        submodel.wanted({"items": [3]})


def test_what_was_retrieved_must_be_whole_and_finite():
    start = model_blocks(fresh(), MAPPING)
    _, submodel = loaded()
    wanted = submodel.wanted({"items": [3]})
    rows, rest = start["items"][[3]], start["rest"]
    for retrieved, expected in [
        ({"rest": rest}, "block 'items' is missing: retrieve what `wanted` returns"),
        ({"items": rows, "rest": rest[1:]}, "block 'rest'"),
        ({"items": rows[:, 1:], "rest": rest}, r"block 'items'\) has shape \(1, 4\)"),
        (
            {"items": rows, "rest": np.where(np.arange(len(rest)) == 1, np.inf, rest)},
            "tensor 'norm.bias' at .1.: inf, a finite number",
        ),
    ]:
        with pytest.raises(MisuseError, match=expected):
            submodel.load(wanted, retrieved)
        with pytest.raises(MisuseError, match="call `load`"):
            submodel.update()


def test_a_change_that_is_no_number_is_refused_by_its_tensor_and_cause():
    model, submodel = loaded()
    (model.words(torch.tensor([7])) * float("nan")).sum().backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    with pytest.raises(
        MisuseError, match=r"'words.weight' at \[7, 0\]: nan is not a finite number, nor is its gradient"
    ):
        submodel.update()
    model, submodel = loaded()
    with torch.no_grad():
        model.out.weight[1, 2] = float("inf")
    with pytest.raises(MisuseError, match=r"tensor 'out.weight' at \[1, 2\]: inf is not a finite number. Nothing was"):
        submodel.update()


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_optimizer_that_was_made_before_hold_is_refused_at_its_first_step(make_optimizer):
    model = fresh()
    optimizer = make_optimizer(model)
    begin_round(hold(model, MAPPING, task()), 3, 7, 9)
    model(torch.tensor([[3, 7], [9, 3]])).sum().backward()
    with pytest.raises(StaleOptimizerError, match=r"table 'items': this \w+ was made before `hold`.*make it after"):
        optimizer.step()


def test_a_table_that_has_a_gradient_and_that_nothing_steps_is_refused():
    model, submodel = loaded()
    out = torch.optim.SGD(model.out.parameters(), lr=0.1)
    model(torch.tensor([[3, 7], [9, 3]])).square().sum().backward()
    out.step()
    with pytest.raises(MisuseError, match=r"'words.weight' has a gradient, and no optimizer .*after `hold` and `load`"):
        submodel.update()
    torch.optim.SGD(model.parameters(), lr=0.0).step()  # a rate that warms up changes nothing, and is meant
    assert len(submodel.update()["items"][0]) == 0


def test_local_tensors_that_a_round_has_spoilt_are_restored():
    mapping = map_model(fresh(), TABLES, local=["norm.running_*", *LOCAL])
    model, submodel = held(mapping=mapping)
    begin_round(submodel, 3, 7, 9)
    model(torch.tensor([[3, 7], [9, 3]]))
    learnt = model.norm.running_mean.clone()
    begin_round(submodel, 3, 7)
    model.norm.running_mean.fill_(torch.nan)
    begin_round(submodel, 3, 7)
    assert torch.equal(model.norm.running_mean, learnt)

    spoilt, submodel = held(mapping=mapping)
    spoilt.norm.running_var.fill_(torch.inf)
    with pytest.raises(MisuseError, match=r"'norm.running_var', which stays with this client.*not finite"):
        begin_round(submodel, 3)


def test_a_change_that_does_not_fit_is_refused_with_the_largest():
    model, submodel = loaded(largest=2.0)
    with torch.no_grad():
        model.words.weight[2] -= 3.0
    with pytest.raises(MisuseError, match=r"tensor 'words.weight' at \[7, 0\]: -3.0 does not fit; the largest is 2.0"):
        submodel.update()


def test_a_client_s_weight_multiplies_its_changes():
    mapping = map_model(fresh(), TABLES, local=LOCAL, examples="examples")
    start = model_blocks(fresh(), mapping)
    model, submodel = held(mapping=mapping, apply="weighted-mean", weights="examples")
    wanted = submodel.wanted({"items": [3]})
    submodel.load(wanted, {"items": start["items"][[3]], "rest": start["rest"]})
    with torch.no_grad():
        model.out.bias += 0.5
    values = submodel.update(examples=8)
    assert values["examples"] == [8.0]
    assert sorted(set(np.round(values["rest"], 6))) == [0.0, 4.0]
    for bad in (None, -1, float("nan"), float("inf")):
        with pytest.raises(MisuseError, match="examples"):
            submodel.update(examples=bad)
    with pytest.raises(MisuseError, match="the mapping counts no examples"):
        loaded()[1].update(examples=8)


class Recommender(nn.Module):
    """A vector and a bias for each item: two tables with the same ids, of which one has a padding."""

    def __init__(self):
        super().__init__()
        self.vectors = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.biases = nn.Embedding(WORDS, 1)
        self.taste = nn.Linear(WIDTH, 1)

    def forward(self, ids):
        return self.taste(self.vectors(ids)).squeeze(-1) + self.biases(ids).squeeze(-1)


def test_several_tables_with_the_same_ids_are_one_block():
    """What two tables retrieve and submit as one is, bit for bit, what the whole model learns."""
    tables = [Table(["vectors.weight", "biases.weight"], select=20, block="items")]
    mapping = map_model(Recommender(), tables)
    assert [(block.name, block.weights) for block in mapping.blocks] == [("items", WORDS * (WIDTH + 1)), ("rest", 6)]
    whole, model = fresh(Recommender), fresh(Recommender, 1)
    start = model_blocks(whole, mapping)
    model, submodel = held(model, mapping)
    ids = torch.tensor([[4, 9, 0], [9, 250, 17]])
    wanted = submodel.wanted({"items": ids})
    assert wanted["items"].tolist() == [0, 4, 9, 17, 250], "what one table takes for padding is a row of the other"
    submodel.load(wanted, start | {"items": start["items"][wanted["items"]]})
    assert submodel.tables["items"] == (model.biases, model.vectors)
    for each in (whole, model):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.5)
        each(ids).square().sum().backward()
        optimizer.step()
    rows, values = submodel.update()["items"]
    learnt = model_blocks(whole, mapping)["items"] - start["items"].astype(np.float64)
    assert rows.tolist() == [0, 4, 9, 17, 250]
    assert np.array_equal(values, learnt[rows])
    assert not values[0, 1:].any(), "the padding's vector stays"
    assert not np.delete(learnt, rows, axis=0).any()


def test_one_of_several_tables_that_nobody_trains_is_refused_by_name():
    tables = [Table(["vectors.weight", "biases.weight"], select=20, block="items")]
    mapping = map_model(Recommender(), tables)
    model, submodel = held(fresh(Recommender), mapping)
    wanted = submodel.wanted({"items": torch.tensor([4, 9])})
    start = model_blocks(fresh(Recommender), mapping)
    submodel.load(wanted, start | {"items": start["items"][wanted["items"]]})
    optimizer = torch.optim.SGD([model.vectors.weight], lr=0.5)
    model(torch.tensor([4, 9])).square().sum().backward()
    optimizer.step()
    with pytest.raises(MisuseError, match=r"'biases\.weight' has a gradient"):
        submodel.update()


def test_more_rows_than_one_submission_takes_are_carried_by_error_feedback():
    """Two rows a round, of a model that was retrieved whole."""
    tables = [Table("words.weight", select=2, block="items")]
    mapping = map_model(fresh(), tables, local=LOCAL)
    model, submodel = held(mapping=mapping, updates="any")
    start = model_blocks(fresh(), mapping)
    submodel.load({"items": ..., "rest": ...}, start)
    train(model, batches(1), OPTIMIZERS["adam"], 1)
    update = submodel.update()
    assert len(update["items"][0]) > 2
    sent = ErrorFeedback().compress(update, submodel.task)
    assert len(sent.update["items"][0]) == 2
    assert len(sent.deferred["items"]) >= len(update["items"][0]) - 2


# ---- what of a model can be held and shared


def test_a_bag_is_replaced_by_a_bag_that_does_the_same():
    class Bags(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.EmbeddingBag(
                WORDS, WIDTH, mode="max", padding_idx=3, include_last_offset=True, max_norm=2.0
            )

    whole, model = fresh(Bags), fresh(Bags, 1)
    start = model_blocks(whole, map_model(whole, TABLES))
    assert start.keys() == {"items"}, "there is nothing else to share"
    model, submodel = held(model.eval())
    assert isinstance(model.words, HeldEmbeddingBag)
    assert not model.words.training
    wanted = submodel.wanted({"items": [1, 2, 3, 4]})
    assert wanted.keys() == {"items"}
    submodel.load(wanted, {"items": start["items"][wanted["items"]]})
    call = torch.tensor([1, 3, 2, 4]), torch.tensor([0, 2, 4])
    assert torch.equal(model.words(*call), whole.words(*call))
    assert submodel.update().keys() == {"items"}


def test_one_module_in_two_places_is_one_table():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(WORDS, WIDTH)
            self.decoder = nn.ModuleDict({"words": self.words})

    model, submodel = held(fresh(Twice))
    assert model.words is model.decoder["words"]
    assert isinstance(model.words, HeldEmbedding)
    assert list(submodel.tables) == ["items"]


def test_a_model_that_was_built_with_held_tables():
    class Built(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = HeldEmbedding(WORDS, WIDTH, table="items")
            self.out = nn.Linear(WIDTH, 2)

    model = fresh(Built)
    model, submodel = held(model)
    assert submodel.tables["items"] == (model.words,)


def tied(model):
    model.out = nn.Linear(WIDTH, WORDS)
    model.out.weight = model.words.weight


def tied_by_memory(model):
    model.out = nn.Linear(WIDTH, WORDS)
    model.out.weight = nn.Parameter(model.words.weight.data.view(WORDS, WIDTH))


def overlapping(model):
    model.extra = nn.Parameter(model.out.weight.data.view(-1)[3:7])


def with_state(model):
    kept = {"get_extra_state": lambda self: {"anything": 1}}
    model.out.__class__ = type("Keeping", (nn.Linear,), kept)


MODELS = {
    "tied": (tied, r"tensors 'words.weight' and 'out.weight' are tied: 'out.weight' needs all rows"),
    "tied by memory": (tied_by_memory, "tensors 'words.weight' and 'out.weight' are tied"),
    "overlap": (overlapping, "tensors 'extra' and 'out.weight' share a part|tensors 'out.weight' and 'extra' share"),
    "integers": (lambda model: model.register_buffer("count", torch.tensor(3)), "tensor 'count' is of torch.int64"),
    "booleans": (lambda model: model.register_buffer("mask", torch.ones(3) > 0), "tensor 'mask' is of torch.bool"),
    "complex": (lambda model: model.register_buffer("z", torch.ones(3) * 1j), "tensor 'z' is of torch.complex64"),
    "meta": (lambda model: model.out.to("meta"), "tensor 'out.bias' is on the device 'meta'"),
    "meta table": (lambda model: model.words.to("meta"), "'meta'"),
    "lazy": (lambda model: model.add_module("more", nn.LazyLinear(3)), "tensor 'more.weight' has no shape yet"),
    "sparse": (lambda model: model.register_buffer("s", torch.eye(3).to_sparse()), "tensor 's' is sparse"),
    "expanded": (lambda model: model.register_buffer("e", torch.ones(1).expand(4)), "tensor 'e' is expanded"),
    "state": (with_state, r"'out._extra_state' in the model's state is a dict and no tensor"),
    "hooks": (lambda model: model.words.register_forward_hook(print), "tensor 'words.weight' has hooks"),
    "subclass": (
        lambda model: setattr(model.words, "__class__", type("Mine", (nn.Embedding,), {})),
        "is the weight of a Mine",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_cannot_be_held_or_shared_is_refused_by_name_and_the_model_stays(name):
    change, expected = MODELS[name]
    model = fresh()
    change(model)
    before = dict(model.named_modules())
    with pytest.raises(MisuseError, match=expected):
        hold(model, MAPPING, task())
    assert dict(model.named_modules()) == before


def test_tensors_that_are_tied_to_each_other_are_shared_once():
    class Tied(Classifier):
        def __init__(self):
            super().__init__()
            self.again = nn.Linear(WIDTH, CLASSES)
            self.again.weight = self.out.weight

    whole = fresh(Tied)
    mapping = map_model(whole, TABLES, local=LOCAL)
    start = model_blocks(whole, mapping)
    assert len(start["rest"]) == 4 * WIDTH + (WIDTH + 2) * CLASSES
    other = fresh(Tied, 4)
    load_blocks(other, mapping, start)
    assert other.again.weight is other.out.weight
    assert torch.equal(other.out.weight, whole.out.weight)


@pytest.mark.parametrize(
    ("parts", "local", "expected"),
    [
        ([Table("wards.weight", select=9)], LOCAL, "the state has no tensor 'wards.weight'"),
        (TABLES, ["nurm.*", *LOCAL], "local: the state has no tensor 'nurm.*'"),
        (TABLES, [], r"tensor 'norm.num_batches_tracked' is of torch.int64.*local="),
        (TABLES, "*.num_batches_tracked", "local is a list of tensors' names, got the text"),
        ([*TABLES, MegaElements("words", width=4, select=2, tensors=["words.weight"])], LOCAL, "named twice"),
    ],
    ids=str,
)
def test_names_that_are_wrong_are_refused(parts, local, expected):
    with pytest.raises(MisuseError, match=expected):
        map_model(fresh(), parts, local=local)


class Wider(Classifier):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS + 1, WIDTH)


def test_a_model_that_is_not_the_mapping_s_or_the_task_s_is_refused():
    with pytest.raises(MisuseError, match=r"'words.weight' has shape \(301, 5\), and the mapping has \(300, 5\)"):
        hold(fresh(Wider), MAPPING, task())
    with pytest.raises(MisuseError, match=r"'words.weight' \(block 'items'\): rows is 301 in task 'words' and 300"):
        hold(fresh(), MAPPING, task(map_model(fresh(Wider), TABLES, local=LOCAL)))
    mapping = map_model(fresh(), [Table("out.weight", select=1)], local=LOCAL)
    with pytest.raises(MisuseError, match=r"tensor 'out.weight' is the weight of a Linear; tables are"):
        hold(fresh(), mapping, task(mapping))
    with pytest.raises(MisuseError, match=r"is of torch.float64, and in the mapping of float32, which does not hold"):
        model_blocks(fresh().double(), MAPPING)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_models_of_other_floats_are_converted_exactly(dtype):
    whole = fresh().to(dtype)
    mapping = map_model(whole, TABLES, local=LOCAL)
    start = model_blocks(whole, mapping)
    stored = {torch.bfloat16: np.float32, torch.float16: np.float16, torch.float64: np.float64}[dtype]
    assert {array.dtype for array in start.values()} == {np.dtype(stored)}
    model, submodel = held(fresh(seed=5).to(dtype), mapping)
    wanted = submodel.wanted({"items": [3, 7]})
    rounding = submodel.load(wanted, {"items": start["items"][[3, 7]], "rest": start["rest"]})
    assert set(rounding.values()) == {0.0}
    assert torch.equal(model.out.weight, whole.out.weight)
    with torch.no_grad():
        model.words.weight[1] += 0.25
    change = submodel.update()["items"][1][0]
    expected = model.words.weight[1].detach().double() - whole.words.weight[3].detach().double()
    assert np.array_equal(change, expected.numpy())


def test_a_narrow_model_says_what_it_rounds():
    """The servers keep float32, and a client trains in half the bits."""
    start = model_blocks(fresh(), MAPPING)
    model, submodel = held(fresh().to(torch.bfloat16), MAPPING)
    wanted = submodel.wanted({"items": [3]})
    rounding = submodel.load(wanted, {"items": start["items"][[3]], "rest": start["rest"]})
    exact = start["items"][3].astype(np.float64)
    assert rounding["words.weight"] == np.abs(exact - model.words.weight[1].detach().double().numpy()).max() > 0


def test_tensors_that_require_a_gradient_or_are_not_contiguous_are_read_and_written():
    model = fresh()
    model.out.weight = nn.Parameter(torch.rand(WIDTH, CLASSES).t())
    start = model_blocks(model, MAPPING)
    other = fresh(seed=3)
    load_blocks(other, MAPPING, start)
    assert torch.equal(other.out.weight, model.out.weight)
    assert other.out.weight.requires_grad
    load_blocks(model, MAPPING, model_blocks(fresh(seed=3), MAPPING))
    assert torch.equal(model.out.weight, fresh(seed=3).out.weight)


def test_a_submodel_says_what_it_holds():
    submodel = hold(fresh(), MAPPING, task())
    assert "0 of" in repr(submodel)
    assert "call `load` before training" in repr(submodel)
    begin_round(submodel, 3, 7, 9)
    assert f"3 of {WORDS:,} rows; loaded" in repr(submodel)
