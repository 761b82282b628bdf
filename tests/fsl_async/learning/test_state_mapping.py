"""Tensors become blocks and come back; what does not match is refused by the tensor's name."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fsl_async import Dense, MisuseError, Ring, Sparse, Task
from fsl_async.blocks import LARGEST_WIDTH
from fsl_async.learning import MegaElements, StateMapping, Table
from parties import load_model, save_model

RNG = np.random.default_rng(5)
STATE = {
    "embedding.weight": RNG.normal(size=(20, 3)).astype(np.float32),
    "conv.weight": RNG.normal(size=(4, 2, 3, 3)).astype(np.float32),
    "conv.bias": RNG.normal(size=4).astype(np.float16),
    "scale": np.float64(1.5),
    "bn.num_batches_tracked": np.array(7),
}
LOCAL = ["bn.num_batches_tracked"]
MAPPING = StateMapping.of(STATE, [Table("embedding.weight", select=5, block="items")], local=LOCAL)
FIELDS = {"ring": Ring(64, fraction_bits=24), "min_clients": 2, "max_clients": 10}


def same(left, right) -> bool:
    return left.keys() == right.keys() and all(
        (left[name].dtype, left[name].shape, left[name].tobytes())
        == (right[name].dtype, right[name].shape, right[name].tobytes())
        for name in left
    )


def refused(*words: str):
    return pytest.raises(MisuseError, match=".*".join(re.escape(word) for word in words))


# ---- there and back


def test_tables_are_sparse_and_all_the_rest_is_one_dense_block() -> None:
    assert MAPPING.blocks == (Sparse("items", rows=20, width=3, select=5), Dense("rest", size=4 * 18 + 4 + 1))
    model = MAPPING.model(STATE)
    assert np.array_equal(model["items"], STATE["embedding.weight"])
    assert model["rest"].dtype == np.float64, "the smallest that holds all of them"
    assert model["rest"].tolist() == [*STATE["conv.bias"], *STATE["conv.weight"].flat, 1.5], "in the order of names"
    assert same(MAPPING.state(model, STATE), STATE)
    assert MAPPING.state(model).keys() == STATE.keys() - set(LOCAL)


def test_the_order_of_a_dictionary_says_nothing() -> None:
    turned = dict(reversed(STATE.items()))
    again = StateMapping.of(turned, [Table("embedding.weight", select=5, block="items")], local=LOCAL)
    assert again == MAPPING
    assert again.digest() == MAPPING.digest()
    assert same(again.model(turned), MAPPING.model(STATE))


def test_the_digest_sees_what_a_task_does_not() -> None:
    def of(**shapes: tuple[int, ...]) -> StateMapping:
        return StateMapping.of({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})

    first, second, third = of(a=(2, 3), b=(4,)), of(a=(3, 2), b=(4,)), of(a=(2, 3), c=(4,))
    assert first.blocks == second.blocks == third.blocks
    assert len({first.digest(), second.digest(), third.digest()}) == 3


def test_a_model_has_memory_of_its_own() -> None:
    state = {name: array.copy() for name, array in STATE.items()}
    model = MAPPING.model(state)
    state["embedding.weight"] += 1
    found = MAPPING.state(model)
    model["items"][:] = 0
    model["rest"][:] = 0
    assert same(found, {name: array for name, array in STATE.items() if name not in LOCAL})


def test_a_residual_network_fits_although_it_has_more_tensors_than_a_task_has_blocks() -> None:
    state = {f"layer{number}.weight": np.zeros((3, 3), np.float32) for number in range(160)}
    (block,) = StateMapping.of(state).blocks
    assert block == Dense("rest", size=1440)
    Task(name="t", blocks=StateMapping.of(state).blocks, **FIELDS)


def test_mega_elements_lie_in_rows_and_zeros_fill_the_last() -> None:
    mapping = StateMapping.of(STATE, [MegaElements("weights", width=16, select=2)], local=LOCAL)
    (block,) = mapping.blocks
    assert block == Sparse("weights", rows=9, width=16, select=2)  # 137 weights
    model = mapping.model(STATE)
    assert model["weights"].shape == (9, 16)
    assert model["weights"].reshape(-1)[137:].tolist() == [0] * 7
    assert same(mapping.state(model, STATE), STATE)


def test_mega_elements_of_some_tensors_beside_a_table_and_the_rest() -> None:
    parts = [
        MegaElements("conv", width=5, select=3, tensors=["conv.weight", "conv.bias"]),
        Table("embedding.weight", select=5),
    ]
    mapping = StateMapping.of(STATE, parts, rest="others", local=LOCAL, examples="examples")
    assert [block.name for block in mapping.blocks] == ["conv", "embedding.weight", "others", "examples"]
    assert mapping.blocks[0] == Sparse("conv", rows=16, width=5, select=3)
    assert mapping.block("conv.bias") == mapping.blocks[0]
    assert mapping.block("scale") == Dense("others", size=1)
    assert same(mapping.state(mapping.model(STATE), STATE), STATE)
    task = Task(name="t", blocks=mapping.blocks, apply="weighted-mean", weights="examples", **FIELDS)
    mapping.check(task)


def test_one_block_alone_and_a_table_of_fewer_rows() -> None:
    rest = MAPPING.unpack("rest", MAPPING.model(STATE)["rest"])
    assert rest.keys() == {"conv.bias", "conv.weight", "scale"}
    assert np.array_equal(MAPPING.pack("rest", rest), MAPPING.model(STATE)["rest"])
    held = MAPPING.unpack("items", STATE["embedding.weight"][[3, 8]])
    assert held["embedding.weight"].shape == (2, 3)
    assert np.array_equal(MAPPING.pack("items", held), STATE["embedding.weight"][[3, 8]])


def test_a_table_of_more_than_two_axes_and_one_of_one() -> None:
    state = {"heads": RNG.normal(size=(6, 2, 4)), "bias": RNG.normal(size=6)}
    mapping = StateMapping.of(state, [Table("heads", select=2), Table("bias", select=2)])
    assert mapping.blocks == (Sparse("heads", rows=6, width=8, select=2), Sparse("bias", rows=6, width=1, select=2))
    assert same(mapping.state(mapping.model(state)), state)


def test_several_tensors_with_the_same_ids_are_one_block() -> None:
    """A row of it has all their rows, in the order of their names; each tensor comes back as it was."""
    state = {
        "vectors": RNG.normal(size=(9, 2, 4)).astype(np.float32),
        "biases": RNG.normal(size=9),
        "head": RNG.normal(size=3),
    }
    mapping = StateMapping.of(state, [Table(["vectors", "biases"], select=4, block="items")])
    assert mapping.blocks == (Sparse("items", rows=9, width=9, select=4), Dense("rest", size=3))
    assert mapping.tensors == ("biases", "vectors", "head")
    assert mapping.block("biases") == mapping.block("vectors")
    model = mapping.model(state)
    assert model["items"].dtype == np.float64
    assert np.array_equal(model["items"][:, 0], state["biases"])
    assert np.array_equal(model["items"][:, 1:].reshape(9, 2, 4), state["vectors"])
    assert same(mapping.state(model), state)
    held = mapping.unpack("items", model["items"][[7, 2]])
    assert same(held, {"biases": state["biases"][[7, 2]], "vectors": state["vectors"][[7, 2]]})
    assert np.array_equal(mapping.pack("items", held), model["items"][[7, 2]])
    with refused("tensor 'vectors' has shape (1, 2, 4), and the mapping has (2, 2, 4)"):
        mapping.pack("items", held | {"vectors": held["vectors"][:1]})


def test_an_update_of_one_of_several_tensors_selects_its_row_and_names_the_tensor() -> None:
    state = {"biases": np.zeros(9), "vectors": np.zeros((9, 3))}
    mapping = StateMapping.of(state, [Table(["biases", "vectors"], select=4, block="items")])
    task = Task(name="t", blocks=mapping.blocks, **FIELDS)
    after = {"biases": state["biases"].copy(), "vectors": state["vectors"].copy()}
    after["biases"][5], after["vectors"][2] = 0.5, (0, 0.25, 0)
    rows, values = mapping.update(state, after)["items"]
    assert rows.tolist() == [2, 5]
    assert values.tolist() == [[0, 0, 0.25, 0], [0.5, 0, 0, 0]]
    fits = mapping.fits({"items": (rows, values)}, task)
    assert (fits["biases"].value, fits["vectors"].value) == (0.5, 0.25)
    values[0, 3] = 1e30
    with refused("tensor 'vectors' at [2, 2]: 1e+30 does not fit"):
        mapping.fits({"items": (rows, values)}, task)
    after["vectors"][8, 1] = np.inf
    with refused("tensor 'vectors': inf at [8, 1] is not a finite number"):
        mapping.update(state, after)


def test_tensors_that_are_not_one_table() -> None:
    state = {
        "vectors": np.zeros((9, 3)),
        "users": np.zeros((8, 3)),
        "counts": np.zeros(9, np.int64),
        "wide": np.zeros((9, LARGEST_WIDTH)),
    }
    for names, why in (
        (["vectors", "users"], "'vectors' has 9 rows and 'users' has 8; tensors of one table have the same ids"),
        (["vectors", "counts"], "tensor 'counts' is of int64, among floats in block 'items'"),
        (["vectors", "wide"], f"rows of {LARGEST_WIDTH + 3:,} weights in all"),
        (["vectors", "vectors"], "tensor 'vectors' is named twice"),
        ([], "the name of a tensor expected, or of several"),
        (5, "the state has no tensor 5"),
    ):
        with refused(why):
            StateMapping.of(state, [Table(names, select=2, block="items")])
    with refused("several tensors are one block: give it a name with block="):
        StateMapping.of({"a": np.zeros((3, 1)), "b": np.zeros((3, 1))}, [Table(["a", "b"], select=1)])


floats = st.sampled_from([np.float16, np.float32, np.float64, np.dtype(">f4")])
integers = st.sampled_from([np.int8, np.int16, np.uint8, np.int32, np.int64, np.uint32])
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=3)
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=80)


@st.composite
def states(draw: st.DrawFn, dtypes: st.SearchStrategy[np.dtype]) -> dict[str, np.ndarray]:
    found = draw(st.dictionaries(names, hnp.arrays(dtypes, shapes), min_size=1, max_size=6))
    return {name: np.asarray(array) for name, array in found.items()}


@given(st.one_of(states(floats), states(integers)), st.integers(1, 20), st.data())
def test_every_state_comes_back_bit_for_bit(state, width, data) -> None:
    tables = data.draw(st.lists(st.sampled_from(sorted(state)), unique=True))
    parts = [Table(name, select=1, block=f"table {number}") for number, name in enumerate(tables) if state[name].ndim]
    if data.draw(st.booleans()) and len(parts) < len(state):
        parts.insert(0, MegaElements("mega", width=width, select=1))
    mapping = StateMapping.of(state, parts)
    assert same(mapping.state(mapping.model(state)), state)
    assert {tensor for tensor in state if mapping.block(tensor)} == set(mapping.tensors)
    assert sum(block.weights for block in mapping.blocks) >= sum(array.size for array in state.values())


# ---- updates


def trained(*rows: int) -> dict[str, np.ndarray]:
    after = {name: array.copy() for name, array in STATE.items()}
    after["embedding.weight"][list(rows)] += np.float32(0.5)
    after["conv.bias"] += np.float16(0.25)
    return after


def test_an_update_has_the_rows_that_changed_and_all_of_the_rest() -> None:
    after = trained(4, 2)
    update = MAPPING.update(STATE, after)
    rows, values = update["items"]
    assert rows.tolist() == [2, 4]
    exact = after["embedding.weight"][[2, 4]].astype(np.float64) - STATE["embedding.weight"][[2, 4]]
    assert values.tobytes() == exact.tobytes()
    assert update["rest"].dtype == np.float64
    assert np.flatnonzero(update["rest"]).tolist() == [0, 1, 2, 3]


def test_nothing_changed() -> None:
    update = MAPPING.update(STATE, STATE)
    assert update["items"][0].shape == (0,)
    assert update["items"][1].shape == (0, 3)
    assert not update["rest"].any()


def test_examples_multiply_everything_and_are_counted() -> None:
    mapping = StateMapping.of(STATE, [Table("embedding.weight", select=5, block="items")], local=LOCAL, examples="n")
    once, thrice = mapping.update(STATE, trained(2), 1), mapping.update(STATE, trained(2), 3)
    assert thrice["n"].tolist() == [3.0]
    assert np.array_equal(thrice["rest"], 3 * once["rest"])
    assert np.array_equal(thrice["items"][1], 3 * once["items"][1])
    with refused("counts examples: give examples="):
        mapping.update(STATE, STATE)
    with refused("counts no examples", "StateMapping.of(…, examples=)"):
        MAPPING.update(STATE, STATE, 3)
    for wrong in (-1, True, float("nan"), float("inf"), "3"):
        with refused("examples: a number of at least 0 expected", repr(wrong)):
            mapping.update(STATE, STATE, wrong)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_change_that_is_no_number_is_named_by_tensor_and_index(bad: float) -> None:
    after = trained(1)
    after["conv.weight"][2, 1, 0, 2] = bad
    with refused("tensor 'conv.weight'", str(bad), "at [2, 1, 0, 2] is not a finite number"):
        MAPPING.update(STATE, after)
    after = trained(1)
    after["embedding.weight"][17, 2] = bad
    with refused("tensor 'embedding.weight'", str(bad), "at [17, 2] is not a finite number"):
        MAPPING.update(STATE, after)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@given(data=st.data())
def test_integers_change_by_integers(dtype: type, data: st.DataObject) -> None:
    before, after = (data.draw(hnp.arrays(dtype, 6)) for _ in range(2))
    mapping = StateMapping.of({"counts": before})
    exact = after.astype(object) - before.astype(object)
    if any(not -(2**63) <= change < 2**63 for change in exact):
        with refused("tensor 'counts'", "too far"):
            mapping.update({"counts": before}, {"counts": after})
    else:
        assert mapping.update({"counts": before}, {"counts": after})["rest"].tolist() == exact.tolist()


# ---- range and rounding


def task_of(mapping: StateMapping, **fields) -> Task:
    return Task(**{"name": "goods", "blocks": mapping.blocks, **FIELDS, **fields})


def test_what_rounding_takes_is_told_tensor_by_tensor() -> None:
    coarse = task_of(MAPPING, ring=Ring(32, fraction_bits=8), largest=100.0)
    after = trained(3)
    after["scale"] = np.float64(1.5 + 1 / 1024)
    fits = MAPPING.fits(MAPPING.update(STATE, after), coarse)
    assert fits.keys() == {"embedding.weight", "conv.weight", "conv.bias", "scale"}
    assert (fits["scale"].value, fits["scale"].rounding, fits["scale"].largest) == (1 / 1024, 1 / 1024, 100.0)
    assert fits["conv.weight"].value == fits["conv.weight"].rounding == 0.0
    assert 0 < fits["embedding.weight"].rounding <= 2**-9
    assert abs(fits["conv.bias"].value - 0.25) < 0.01


def test_a_value_that_does_not_fit_is_named_by_tensor_index_and_the_largest() -> None:
    task = task_of(MAPPING, largest=2.0)
    after = trained(3)
    after["conv.weight"][3, 0, 1, 1] = STATE["conv.weight"][3, 0, 1, 1] + 4
    with refused("tensor 'conv.weight' at [3, 0, 1, 1]", "does not fit; the largest is 2.0"):
        MAPPING.fits(MAPPING.update(STATE, after), task)
    after = trained(3)
    after["embedding.weight"][11, 1] -= 3
    with refused("tensor 'embedding.weight' at [11, 1]", "does not fit; the largest is 2.0"):
        MAPPING.fits(MAPPING.update(STATE, after), task)
    with refused("tensor 'embedding.weight' at [6, 1]: nan is not a finite number"):
        MAPPING.fits({"items": (np.array([6]), np.array([[0, np.nan, 0]]))}, task)


def test_mega_elements_are_named_by_the_tensor_of_each_weight() -> None:
    mapping = StateMapping.of(STATE, [MegaElements("weights", width=16, select=9)], local=LOCAL)
    task = task_of(mapping, largest=2.0, updates="any")
    after = trained()
    after["conv.weight"][3, 0, 1, 1] = STATE["conv.weight"][3, 0, 1, 1] + 4
    with refused("tensor 'conv.weight' at [3, 0, 1, 1]"):
        mapping.fits(mapping.update(STATE, after), task)
    after["conv.weight"][3, 0, 1, 1] = STATE["conv.weight"][3, 0, 1, 1] + 1
    fits = mapping.fits(mapping.update(STATE, after), task)
    assert abs(fits["conv.weight"].value - 1) < 1e-6
    assert fits["embedding.weight"].value == 0.0
    with refused("tensor 'weights (filling)' at [140]"):
        mapping.fits({"weights": (np.array([8]), np.full((1, 16), [0.0] * 12 + [9.0] + [0.0] * 3))}, task)


def test_the_examples_must_fit_as_well() -> None:
    mapping = StateMapping.of(STATE, local=LOCAL, examples="n")
    task = task_of(mapping, largest=100.0, apply="weighted-mean", weights="n")
    mapping.fits(mapping.update(STATE, STATE, 100), task)
    with refused("block 'n' at [0]: 101.0 does not fit; the largest is 100.0"):
        mapping.fits(mapping.update(STATE, STATE, 101), task)


@given(
    hnp.arrays(np.float64, 5),
    st.sampled_from([Ring(32, fraction_bits=12), Ring(64, fraction_bits=24), Ring(128, fraction_bits=40)]),
)
def test_what_fits_can_be_submitted_and_what_does_not_cannot(values: np.ndarray, ring: Ring) -> None:
    mapping = StateMapping.of({"w": values})
    task = task_of(mapping, ring=ring)
    try:
        elements = ring.encode(values, task.largest_integer)
    except MisuseError:
        with refused("tensor 'w' at ["):
            mapping.fits({"rest": values}, task)
        assert ring.misfits(values, task.largest_integer).any()
    else:
        (fit,) = mapping.fits({"rest": values}, task).values()
        assert fit.rounding == np.abs(ring.decode(elements) - values).max()
        assert not ring.misfits(values, task.largest_integer).any()


# ---- what does not match


def without(*names: str) -> dict[str, np.ndarray]:
    return {name: array for name, array in STATE.items() if name not in names}


def test_a_tensor_that_is_missing_or_too_many_or_another_is_named() -> None:
    with refused("tensor 'conv.bias' is missing; there are"):
        MAPPING.model(without("conv.bias"))
    with refused("tensor 'gate' is not in the mapping"):
        MAPPING.model(STATE | {"gate": np.zeros(2)})
    with refused("tensor 'conv.weight' has shape (4, 18), and the mapping has (4, 2, 3, 3)"):
        MAPPING.model(STATE | {"conv.weight": STATE["conv.weight"].reshape(4, 18)})
    with refused("tensor 'conv.bias' is of float32, and in the mapping of float16"):
        MAPPING.model(STATE | {"conv.bias": STATE["conv.bias"].astype(np.float32)})
    with refused("tensor 'conv.bias': a plain NumPy array expected, got list", "fsl_async.learning.pytorch"):
        MAPPING.model(STATE | {"conv.bias": [0.0] * 4})
    with refused("a state is a dict from names to arrays, got list"):
        MAPPING.model(list(STATE))  # type: ignore[arg-type]
    MAPPING.model(without(*LOCAL))  # what stays with the client need not be there


def test_a_model_that_is_another_is_named() -> None:
    model = MAPPING.model(STATE)
    with refused("tensor 'embedding.weight' (block 'items') is missing"):
        MAPPING.state({"rest": model["rest"]})
    with refused("tensor 'embedding.weight' (block 'items') has shape (19, 3), and in the mapping (20, 3)"):
        MAPPING.state(model | {"items": model["items"][1:]})
    with refused("block 'rest' (tensors 'conv.bias', 'conv.weight', 'scale') is of float32, and in the mapping of"):
        MAPPING.state(model | {"rest": model["rest"].astype(np.float32)})
    with refused("tensor 'bn.num_batches_tracked'", "missing in the local state"):
        MAPPING.state(model, {})
    with refused("a model is a dict from names to arrays, got list"):
        MAPPING.state(list(model))  # type: ignore[arg-type]
    with refused("tensor 'embedding.weight' has shape (), and the mapping has (20, 3)"):
        MAPPING.pack("items", {"embedding.weight": np.zeros(())})
    with refused("block 'items'", "has shape (2, 4)"):
        MAPPING.unpack("items", np.zeros((2, 4), np.float32))
    with refused("block 'rest' holds 3 tensors", "all of it"):
        MAPPING.unpack("rest", model["rest"][:-1])
    with refused("no tensors in block 'head'", "['items', 'rest']"):
        MAPPING.unpack("head", model["rest"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 21}, ["tensor 'embedding.weight' (block 'items'): rows is 21 in task 'goods' and 20 in the mapping"]),
        ({"width": 4}, ["tensor 'embedding.weight' (block 'items'): width is 4 in task 'goods' and 3"]),
        ({"select": 6}, ["tensor 'embedding.weight' (block 'items'): select is 6 in task 'goods' and 5"]),
        (
            {"name": "things"},
            ["tensor 'embedding.weight' (block 'items'): task 'goods' has no such block, only ['things'"],
        ),
    ],
)
def test_a_task_with_another_table_is_named_with_both_values(change, words) -> None:
    items, rest = MAPPING.blocks
    fields = {"name": items.name, "rows": items.rows, "width": items.width, "select": items.select} | change
    with refused(*words):
        MAPPING.check(task_of(MAPPING, blocks=[Sparse(**fields), rest]))


def test_a_task_with_another_rest_is_named() -> None:
    items, rest = MAPPING.blocks
    MAPPING.check(task_of(MAPPING, blocks=[rest, items]))  # their order is the task's
    with refused("block 'rest' (tensors 'conv.bias', 'conv.weight', 'scale'): size is 78", "and 77 in the mapping"):
        MAPPING.check(task_of(MAPPING, blocks=[items, Dense("rest", size=78)]))
    with refused("block 'rest'", "is Sparse in task 'goods' and Dense in the mapping"):
        MAPPING.check(task_of(MAPPING, blocks=[items, Sparse("rest", rows=77, select=1)]))
    with refused("has a block 'more', in which the mapping has no tensor"):
        MAPPING.check(task_of(MAPPING, blocks=[items, rest, Dense("more", size=1)]))
    with refused("weights='n', and the mapping was made with examples=None"):
        counted = [items, rest, Dense("n", size=1)]
        MAPPING.check(task_of(MAPPING, blocks=counted, apply="weighted-mean", weights="n"))


def test_a_fit_is_only_told_of_the_mapping_s_own_task() -> None:
    items, _ = MAPPING.blocks
    with refused("task 'goods' has no such block"):
        MAPPING.fits({}, task_of(MAPPING, blocks=[items]))
    with refused("block 'rest': 77 values expected, got float64 of shape (76,)"):
        MAPPING.fits({"rest": np.zeros(76)}, task_of(MAPPING))
    with refused("block 'items': a pair of rows and values expected, got ndarray"):
        MAPPING.fits({"items": np.zeros((20, 3))}, task_of(MAPPING))


def test_integers_and_booleans_are_refused_by_name_or_stay_with_the_client() -> None:
    with refused("tensor 'bn.num_batches_tracked' is of int64, among floats", "local=['bn.num_batches_tracked']"):
        StateMapping.of(STATE)
    with refused("tensor 'mask' is of bool", "local=['mask']"):
        StateMapping.of({"mask": np.ones(3, bool)})
    with refused("tensor 'z' is of complex64"):
        StateMapping.of({"z": np.ones(3, np.complex64)})
    with refused("block 'rest': no dtype holds"):
        StateMapping.of({"a": np.zeros(1, np.int64), "b": np.zeros(1, np.uint64)})
    with refused("a name of 1 to 64 printable characters expected, got ''"):
        StateMapping.of({"a": np.zeros(1)}, examples="")
    with refused("two blocks are called 'rest': one holds 'a', the other the numbers of examples"):
        StateMapping.of({"a": np.zeros(1)}, examples="rest")
    with refused("nothing to learn"):
        StateMapping.of({"a": np.zeros(1)}, local=["a"])
    with refused("tensor 'counts' is of int32, and a mean weighted by examples gives fractions"):
        StateMapping.of({"counts": np.zeros(3, np.int32)}, examples="n")


def test_patterns_name_tensors_that_stay_with_the_client() -> None:
    state = {f"layer{number}.{name}": np.array(number) for number in (0, 1) for name in ("steps", "seen")}
    state |= {"w[0]": np.zeros(2), "w0": np.zeros(2), "name": "not even an array"}
    mapping = StateMapping.of(state, local=["*.steps", "layer?.seen", "w[0]", "name"])
    assert mapping.local == ("layer0.seen", "layer0.steps", "layer1.seen", "layer1.steps", "name", "w[0]")
    assert mapping.tensors == ("w0",)
    assert mapping.state(mapping.model(state), state).keys() == state.keys()
    with refused("local: the state has no tensor '*.step'; it has 'layer0.steps'"):
        StateMapping.of(state, local=["*.step"])
    with refused("Table('w[0]'): tensor 'w[0]' is named twice"):
        StateMapping.of(state, [Table("w[0]", select=1)], local=["*.s*", "name", "w[0]"])


def test_two_parts_never_share_a_tensor_or_a_block() -> None:
    with refused("Table('embedding.weight'): tensor 'embedding.weight' is named twice"):
        StateMapping.of(STATE, [Table("embedding.weight", select=1), Table("embedding.weight", select=1, block="b")])
    with refused("tensor 'conv.bias' is named twice"):
        StateMapping.of(STATE, [Table("conv.bias", select=1)], local=["conv.bias", *LOCAL])
    with refused("two blocks are called 'items': one holds 'embedding.weight', the other 'conv.bias'"):
        parts = [Table("embedding.weight", select=1, block="items"), Table("conv.bias", select=1, block="items")]
        StateMapping.of(STATE, parts, local=LOCAL)
    with refused("MegaElements('b'): no tensor is left"):
        StateMapping.of(STATE, [MegaElements("a", 4, 1), MegaElements("b", 4, 1)], local=LOCAL)


def test_parts_that_no_block_can_be_made_of() -> None:
    with refused("Table('embed'): the state has no tensor 'embed'; it has 'embedding.weight'"):
        StateMapping.of(STATE, [Table("embed", select=1)])
    with refused("Table('scale')", "not one of shape ()"):
        StateMapping.of(STATE, [Table("scale", select=1)], local=LOCAL)
    with refused("embedding.weight: select must be an integer from 1 to 20, not 21"):
        StateMapping.of(STATE, [Table("embedding.weight", select=21)], local=LOCAL)
    with refused("MegaElements('w'): width must be a whole number of at least 1, not 0"):
        StateMapping.of(STATE, [MegaElements("w", width=0, select=1)], local=LOCAL)
    with refused("a list of Table and MegaElements expected, got 'embedding.weight'"):
        StateMapping.of(STATE, ["embedding.weight"])  # type: ignore[list-item]
    with refused("local is a list of tensors' names, got the text 'scale'"):
        StateMapping.of(STATE, local="scale")
    long = "encoder." * 10 + "weight"
    with refused(f"Table('{long}'): a block's name has 1 to 64 printable characters: give it one with block="):
        StateMapping.of({long: np.zeros((3, 2))}, [Table(long, select=1)])
    mapping = StateMapping.of({long: np.zeros((3, 2))}, [Table(long, select=1, block="encoder")])
    assert mapping.block(long).name == "encoder"
    with refused("tensor 'bn.num_batches_tracked' stays with each client"):
        MAPPING.block("bn.num_batches_tracked")
    with refused("tensor 'gate' is in no block of the mapping"):
        MAPPING.block("gate")


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_model_goes_through_a_file(tmp_path, suffix: str) -> None:
    path = tmp_path / f"model.{suffix}"
    save_model(path, MAPPING.model(STATE))
    assert same(MAPPING.state(load_model(path), STATE), STATE)


def test_a_mapping_is_a_value() -> None:
    assert replace(MAPPING) == MAPPING
    assert hash(MAPPING) == hash(replace(MAPPING))
