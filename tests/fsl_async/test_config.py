"""A round's configuration: one canonical value, hostile bytes, keys, and the model it speaks of."""

import gc
from functools import partial
from typing import Any

import msgpack
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsl_async import Dense, MisuseError, PeerViolationError, Ring, Sparse, Task
from fsl_async import config as round_config
from fsl_async.config import BlockModel, Draw, RoundConfig, ServerKeys, describe_model
from fsl_async.differences import first_difference
from fsl_async.digests import Domain, digest
from fsl_async.union import UnionBlock
from fsl_async.wire.codec import CONTROL_LIMIT, decode, encode
from fsl_async.wire.messages import FromServer, Opened
from tests.support.cases import in_turn
from tests.support.machine_scenes import config_of, key

CONFIG = config_of()
LruCache = type(round_config._carriers)
UNION = (UnionBlock("a", 7, key(1)),)
MANY = Task(name="t", blocks=(Sparse("a", rows=1000, select=16), Dense("d", size=3)), ring=Ring(64))
OTHER = (UnionBlock("d", 1, key(1)),)
SMALL = {"union": (UnionBlock("a", 3, key(1)),), "plain": (BlockModel("a", "f4", key(2)),)}
"""A union that moves plainly."""


def changed(**fields: Any) -> bytes:
    return bytes(msgpack.packb(msgpack.unpackb(CONFIG.canonical()) | fields))


# ---- canonical form


def test_canonical_bytes_are_plain_messagepack() -> None:
    plain = msgpack.unpackb(CONFIG.canonical())
    assert list(plain) == [field.name for field in msgspec.structs.fields(RoundConfig)]
    assert plain["hash_seed"] == key(1)
    assert plain["servers"][1] == {"channel": key(6), "statement": key(7)}


def test_parse_inverts_canonical() -> None:
    for config in (
        CONFIG,
        config_of(9, session=4),
        config_of(union=UNION),
        config_of(**SMALL),
        config_of(protocol="psu"),
        config_of(task=SAMPLED, sample=Draw(41, 21, key(4))),
        config_of(task=SAMPLED, sample=Draw(20, 0, key(4))),
    ):
        again = RoundConfig.parse(config.canonical(), "S0")
        assert again == config
        assert again.round_id() == config.round_id()


SAMPLED = msgspec.structs.replace(CONFIG.task, sample=0.5)

CHANGES: dict[str, dict[str, Any]] = {
    "task": {"task": Task(name="u", blocks=CONFIG.task.blocks, ring=Ring(64), alignment="union")},
    "number": {"number": 5},
    "session": {"session": 1},
    "hash_seed": {"hash_seed": key(77)},
    "toss": {"toss": (key(2), key(77))},
    "servers": {"servers": (CONFIG.servers[1], CONFIG.servers[0])},
    "model": {"model": (CONFIG.model[0], BlockModel("d", "f4", key(9)))},
    "bins": {"bins": (2,)},
    "protocol": {"protocol": "psu"},
    "union": {"union": UNION},
    "plain": SMALL,
    "found": {"found": key(3)},
    "state": {"state": key(77)},
    "sample": {"task": SAMPLED, "sample": Draw(40, 20, key(4))},
}


def test_every_field_is_in_the_round_s_name() -> None:
    assert set(CHANGES) == {field.name for field in msgspec.structs.fields(RoundConfig)} - {"version"}
    names = {config_of(**{"number": 4, "session": 4} | change).round_id() for change in CHANGES.values()}
    assert len(names | {CONFIG.round_id()}) == len(CHANGES) + 1


@pytest.mark.parametrize(
    "sample", [Draw(40, 19, key(4)), Draw(40, 0, key(4)), Draw(20, 10, key(4)), Draw(40, 20, b"short"), None]
)
def test_a_sample_of_another_size_than_the_task_s_is_refused(sample: Draw | None) -> None:
    with pytest.raises(MisuseError, match="sample"):
        config_of(task=SAMPLED, sample=sample)


def test_a_sample_where_everybody_takes_part_is_refused() -> None:
    with pytest.raises(MisuseError, match="if, and only if, the task has one"):
        config_of(sample=Draw(40, 20, key(4)))


# ---- hostile bytes

HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "not messagepack": b"\xc1",
    "a number": b"\x01",
    "trailing bytes": CONFIG.canonical() + b"\x00",
    "an unknown field": changed(more=1),
    "another version": changed(version=2),
    "round 0": changed(number=0, session=0),
    "a negative round": changed(number=-1),
    "a round no one reaches": changed(number=2**32 + 1),
    "a session after the round": changed(session=5),
    "a session before all rounds": changed(session=0),
    "a boolean for a number": changed(number=True),
    "a short seed": changed(hash_seed=key(1)[1:]),
    "a long seed": changed(hash_seed=key(1) + b"x"),
    "a seed as text": changed(hash_seed="A" * 43 + "="),
    "a short toss": changed(toss=[key(2), b""]),
    "one toss": changed(toss=[key(2)]),
    "one server": changed(servers=[{"channel": key(4), "statement": key(5)}]),
    "a short server key": changed(servers=[{"channel": b"", "statement": key(5)}] * 2),
    "no model": changed(model=[]),
    "a model of other blocks": changed(model=[{"name": "a", "dtype": "f4", "digest": key(8)}] * 2),
    "a model in another order": changed(model=list(reversed(msgpack.unpackb(CONFIG.canonical())["model"]))),
    "bins left out": msgpack.packb({k: v for k, v in msgpack.unpackb(CONFIG.canonical()).items() if k != "bins"}),
    "no bins": changed(bins=[]),
    "bins of a dense block, too": changed(bins=[1, 1]),
    "fewer bins than a client puts up with": changed(bins=[0]),
    "more bins than rows": changed(bins=[9]),
    "bins below zero": changed(bins=[-1]),
    "half a bin": changed(bins=[1.5]),
    "bins as text": changed(bins="\1"),
    "an object dtype": changed(model=[{"name": n, "dtype": "O", "digest": key(8)} for n in "ad"]),
    "a huge dtype": changed(model=[{"name": n, "dtype": "S2000000000", "digest": key(8)} for n in "ad"]),
    "a short digest of the state": changed(state=b"\0"),
    "a short model digest": changed(model=[{"name": n, "dtype": "f4", "digest": b""} for n in "ad"]),
    "an unknown protocol": changed(protocol="other"),
    "a protocol that the task has not": changed(protocol="psr"),
    "a short name of a round": changed(found=b"x"),
    "a union of a dense block": changed(union=[{"name": "d", "size": 1, "digest": key(1)}]),
    "a union of an unknown block": changed(union=[{"name": "x", "size": 1, "digest": key(1)}]),
    "a union larger than its block": changed(union=[{"name": "a", "size": 9, "digest": key(1)}]),
    "a union of fewer than no rows": changed(union=[{"name": "a", "size": -1, "digest": key(1)}]),
    "a plain block that is none": changed(plain=[{"name": "a", "dtype": "f4", "digest": key(1)}]),
    "a plain block left out": msgpack.packb(msgpack.unpackb(config_of(**SMALL).canonical()) | {"plain": []}),
    "a plain block in another dtype": msgpack.packb(
        msgpack.unpackb(config_of(**SMALL).canonical()) | {"plain": [{"name": "a", "dtype": "f8", "digest": key(2)}]}
    ),
    "a union's short digest": changed(union=[{"name": "a", "size": 1, "digest": b""}]),
    "an impossible task": changed(task=msgpack.unpackb(CONFIG.task.canonical()) | {"min_clients": 1}),
    "another order of fields": msgpack.packb(dict(reversed(msgpack.unpackb(CONFIG.canonical()).items()))),
    "a default left out": msgpack.packb({k: v for k, v in msgpack.unpackb(CONFIG.canonical()).items() if k != "union"}),
    "deep nesting": b"\x91" * 5000,
    "an extension": changed(number=msgpack.ExtType(5, b"x")),
}


@in_turn("data", HOSTILE.values())
def test_hostile_bytes_are_a_violation_by_their_server(data: bytes) -> None:
    with pytest.raises(
        PeerViolationError, match=r"^S1: sent a round configuration that (cannot be read|is not in canon)"
    ):
        RoundConfig.parse(data, "S1")


def test_every_cut_is_refused() -> None:
    whole = CONFIG.canonical()
    for length in range(len(whole)):
        with pytest.raises(PeerViolationError):
            RoundConfig.parse(whole[:length], "S0")


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(PeerViolationError):
        RoundConfig.parse(data, "S0")


@given(st.data())
def test_a_damaged_configuration_is_refused_or_is_another_round(data: st.DataObject) -> None:
    damaged = bytearray(CONFIG.canonical())
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    try:
        config = RoundConfig.parse(bytes(damaged), "S0")
    except PeerViolationError:
        return
    assert config.round_id() != CONFIG.round_id()
    assert config.canonical() == damaged


def test_the_largest_configuration_fits_a_message() -> None:
    names = [f"{number:02}" + "𝔁" * 62 for number in range(32)]
    task = Task(
        name="𝔁" * 64,
        blocks=[Sparse(name, rows=2**32, select=2**32, width=2**20, stash=64) for name in names],
        ring=Ring(128, fraction_bits=100),
        alignment="union",
    )
    config = config_of(
        2**32,
        task=task,
        model=tuple(BlockModel(name, "f8", key(1)) for name in names),
        union=tuple(UnionBlock(name, 2**32, key(1)) for name in names),
        plain=tuple(BlockModel(name, "f8", key(1)) for name in names),
    )
    wire = b"".join(encode(Opened(config.canonical())))
    assert len(wire) < CONTROL_LIMIT
    assert RoundConfig.parse(decode(wire, FromServer, "S0").message.config, "S0") == config


# ---- what follows from a configuration


def test_keys_have_one_purpose_each() -> None:
    """No two purposes, blocks, epochs or seeds share a key."""
    configs = [CONFIG, config_of(5, session=4), config_of(hash_seed=key(77))]
    keys = [
        *(config.convert_key(block, salt) for config in configs for block in (0, 1) for salt in (b"a", b"b")),
        *(config.placement_key(block) for config in configs[::2] for block in (0, 1)),
        *(config.tree_key(domain) for config in configs[::2] for domain in (Domain.EXPAND, Domain.SELECT)),
    ]
    assert len(set(keys)) == len(keys)
    assert all(len(value) == 16 for value in keys)


def test_trees_outlive_their_round_and_conversion_keys_do_not() -> None:
    first, later = config_of(4), config_of(7, session=4)
    assert first.tree_key(Domain.EXPAND) == later.tree_key(Domain.EXPAND)
    assert first.placement_key(0) == later.placement_key(0)
    assert first.convert_key(0, b"") != later.convert_key(0, b"")
    assert (first.epoch, later.epoch) == (4, 7)


def test_carriers_are_remembered_for_some_rounds_alone() -> None:
    for number in range(1, 100):
        for client in ("alice", "bob"):
            config_of(number, session=1).carrier(client)
    caches = [each for each in gc.get_objects() if type(each) is LruCache]  # isinstance would look behind dead proxies
    remembered = [each for each in caches if _is_of_a_round(each.__wrapped__)]
    assert sum(each.cache_info().currsize for each in remembered) == 2 * round_config.RECENT_ROUNDS


def _is_of_a_round(function: Any) -> bool:
    return isinstance(function, partial) and function.func is round_config._carrier


def test_carriers_alternate_over_clients_and_rounds() -> None:
    over_clients = [CONFIG.carrier(f"client {number}") for number in range(400)]
    over_rounds = [config_of(number, session=1).carrier("alice") for number in range(1, 401)]
    for choices in (over_clients, over_rounds):
        assert set(choices) == {0, 1}
        assert 140 < sum(choices) < 260


# ---- differences


@in_turn("field", CHANGES)
def test_the_first_difference_is_named_with_both_values(field: str) -> None:
    other = config_of(**{"number": 4, "session": 4} | CHANGES[field])
    others = {
        "plain": SMALL | {"plain": (BlockModel("a", "f4", key(3)),)},
        "sample": {"task": SAMPLED, "sample": Draw(40, 20, key(5))},
    }
    base = config_of(**others.get(field, {}))
    difference = first_difference(base, other)
    if field == "task":
        assert difference == ("task.name", "'t'", "'u'")
    else:
        assert difference is not None
        assert difference[0].startswith(field)
        assert difference[1] != difference[2]


def test_the_first_of_several_differences_is_named() -> None:
    assert first_difference(CONFIG, config_of(5, session=4, hash_seed=key(77))) == ("number", "4", "5")


def test_nested_differences_are_named_to_the_field() -> None:
    one = Task(name="t", blocks=[Dense("d", size=3)], ring=Ring(64, fraction_bits=3))
    other = Task(name="t", blocks=[Dense("d", size=3)], ring=Ring(64, fraction_bits=4))
    assert first_difference(one, other) == ("ring.fraction_bits", "3", "4")


BLOCKS = (Sparse("a", rows=1000, select=2), Dense("d", size=3))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"blocks": (Sparse("a", rows=1001, select=2), BLOCKS[1])}, ("blocks[0].rows", "1000", "1001")),
        ({"blocks": (BLOCKS[0], Dense("head", size=3))}, ("blocks[1].name", "'d'", "'head'")),
        ({"blocks": (BLOCKS[0],)}, ("blocks[1]", "Dense 'd'", "missing")),
        ({"blocks": (BLOCKS[1], BLOCKS[0])}, ("blocks[0]", "Sparse 'a'", "Dense 'd'")),
        ({"largest": 4.0}, ("largest", "not set", "4.0")),
        ({"name": "x" * 64}, ("name", "'t'", repr("x" * 64))),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_difference_is_told_in_words(changes: dict[str, Any], expected: tuple[str, str, str]) -> None:
    """And never as Python shows its objects."""
    task = Task(name="t", blocks=BLOCKS, ring=Ring(64, fraction_bits=3))
    other = msgspec.structs.replace(task, **changes)
    assert first_difference(task, other) == expected
    assert first_difference(other, task) == (expected[0], *expected[:0:-1])


def test_of_digests_and_keys_the_beginnings_are_told() -> None:
    other = config_of(4, session=4, toss=(CONFIG.toss[0], key(99)))
    assert first_difference(CONFIG, other) == (
        "toss[1]", f"{CONFIG.toss[1].hex()[:16]}…", f"{key(99).hex()[:16]}…"
    )  # fmt: skip


def test_equal_values_have_no_difference() -> None:
    assert first_difference(CONFIG, config_of()) is None


# ---- the model

TASK = Task(
    name="t",
    blocks=[Sparse("a", rows=4, select=2), Sparse("b", rows=3, select=1, width=2), Dense("d", size=5)],
    ring=Ring(64),
)


def model(**changes: Any) -> dict[str, Any]:
    arrays: dict[str, Any] = {"a": np.zeros((4, 1), "f4"), "b": np.zeros((3, 2), "u1"), "d": np.zeros(5, "f8")}
    return {name: array for name, array in (arrays | changes).items() if array is not None}


def test_a_model_is_described_block_by_block_in_the_task_s_order() -> None:
    described = describe_model(TASK, dict(reversed(model().items())))
    assert [(entry.name, entry.dtype) for entry in described] == [("a", "f4"), ("b", "u1"), ("d", "f8")]
    assert described[0].digest == digest(Domain.MODEL, b"a", b"f4", bytes(16))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_every_dtype_is_described(dtype: str) -> None:
    assert describe_model(TASK, model(a=np.ones((4, 1), dtype)))[0].dtype == dtype


def test_the_layout_in_memory_does_not_matter() -> None:
    array = np.arange(6, dtype=np.uint8).reshape(3, 2)
    expected = describe_model(TASK, model(b=array))
    assert describe_model(TASK, model(b=np.asfortranarray(array))) == expected
    assert describe_model(TASK, model(b=np.repeat(array, 2, axis=0)[::2])) == expected
    assert describe_model(TASK, model(a=np.zeros(4, "f4"))) == describe_model(TASK, model())


def test_the_digest_tells_contents_names_and_dtypes_apart() -> None:
    digests = [
        describe_model(TASK, model(a=array))[0].digest
        for array in (np.zeros(4, "f4"), np.ones(4, "f4"), np.zeros(4, "i4"))
    ]
    assert len(set(digests)) == 3


@in_turn(
    "changes, message",
    [
        ({"a": None}, r"model: blocks \['a', 'b', 'd'\] expected, got \['b', 'd'\]"),
        ({"x": np.zeros(1)}, r"model: blocks \['a', 'b', 'd'\] expected, got \['a', 'b', 'd', 'x'\]"),
        ({"a": np.zeros((5, 1))}, r"model block 'a': shape \(4, 1\) expected, got \(5, 1\)"),
        ({"a": np.zeros((4, 2))}, r"model block 'a': shape \(4, 1\) expected, got \(4, 2\)"),
        ({"b": np.zeros(6)}, r"model block 'b': shape \(3, 2\) expected, got \(6,\)"),
        ({"b": np.zeros((2, 3))}, r"model block 'b': shape \(3, 2\) expected, got \(2, 3\)"),
        ({"d": np.zeros((5, 1))}, r"model block 'd': shape \(5,\) expected, got \(5, 1\)"),
        ({"a": np.zeros(4, ">f4")}, "model block 'a': dtype >f4 is not one of .*, little-endian"),
        ({"a": np.zeros(4, "c8")}, "model block 'a': dtype complex64 is not one of"),
        ({"a": np.zeros(4, "?")}, "model block 'a': dtype bool is not one of"),
        ({"a": np.zeros(4, "S3")}, r"model block 'a': dtype \|S3 is not one of"),
        ({"a": np.zeros(4, "O")}, "model block 'a': dtype object is not one of"),
        ({"a": np.zeros(4, "f4,f4")}, "model block 'a': dtype .* is not one of"),
    ],
)
def test_models_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        describe_model(TASK, model(**changes))


# ---- what is made in this process is checked, too


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ServerKeys(b"short", key(1)), "server key: 32 bytes expected, got 5"),
        (lambda: BlockModel("a", "f3", key(1)), "model block 'a': dtype 'f3' is not one of"),
        (lambda: config_of(hash_seed=b""), "hash seed or toss: 32 bytes expected, got 0"),
        (lambda: config_of(session=5), "1 ≤ session ≤ number ≤ 4294967296 expected, got session 5, number 4"),
        (lambda: config_of(model=()), r"a model of blocks \['a', 'd'\] expected, got \[\]"),
        (
            lambda: config_of(union=(UnionBlock("d", 1, key(1)),), bins=(0,)),
            r"a union of blocks \['a'\] expected, got \['d'\]",
        ),
        (lambda: config_of(protocol="psu", union=UNION), "one that finds a union is aligned on none"),
        (lambda: config_of(bins=()), "bins of 1 sparse blocks expected, each a number, got 0 numbers"),
        (lambda: config_of(bins=(1, 1)), "bins of 1 sparse blocks expected, each a number, got 2 numbers"),
        (lambda: config_of(bins=(0,)), "1 to 8 bins expected in a segment of 'a'"),
        (lambda: config_of(bins=(9,)), "a client selects 2 of 8 rows, got 9: with fewer, rows would find no place"),
        (lambda: config_of(bins=(-1,), union=UNION), "1 to 7 bins expected"),
        (lambda: config_of(bins=(8,), union=UNION), "2 of 7 rows, got 8"),
        (lambda: config_of(task=MANY, bins=(23,)), "24 to 384 bins expected in a segment of 'a'"),
        (lambda: config_of(task=MANY, bins=(385,)), "24 to 384 bins expected"),
        (lambda: config_of(version=2), "version 1 expected, got 2"),
    ],
)
def test_impossible_rounds_are_not_made(make: Any, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        make()


LEAST_BINS_OF_THE_PAGE = ((3, 50), (15, 320), (63, 150), (255, 70), (1_023, 44), (2**32, 43))


@in_turn("select", [1, 3, 4, 15, 16, 63, 64, 255, 256, 1_023, 1_024, 5_000])
def test_a_client_takes_the_fewest_and_the_most_bins_and_no_others(select: int) -> None:
    """At the edges of the table, and where a block has fewer rows than sixteen times the least."""
    least = -(-select * next(each for most, each in LEAST_BINS_OF_THE_PAGE if select <= most) // 100)
    for rows in sorted({max(select, least + extra) for extra in (-1, 0, 1)} | {max(select, 16 * least - 1), 2**32}):
        task = Task(name="t", blocks=(Sparse("a", rows=rows, select=select),), ring=Ring(64))
        model = (BlockModel("a", "f4", key(1)),)
        fewest, most = min(rows, least), min(rows, 16 * least)
        for bins in {fewest, most}:
            assert config_of(task=task, model=model, bins=(bins,)).shape
        for bins in (fewest - 1, most + 1):
            with pytest.raises(MisuseError, match="bins"):
                config_of(task=task, model=model, bins=(bins,))
