"""Tasks: what is refused and how it is said, and canonical bytes that never change by accident."""

from typing import Any

import msgpack
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsl_async import Dense, MisuseError, PeerViolationError, Ring, Sparse, Task
from fsl_async.options import protecting, running, summing, taking_part
from fsl_async.union import union_task
from tests.support.cases import in_turn

TOPICS = (running, taking_part, summing, protecting)

GOODS = Task(
    name="goods",
    blocks=(Sparse("items", rows=197_372, width=18, select=418, stash=1), Dense("head", size=64_327)),
    ring=Ring(64, fraction_bits=24),
    selection="adaptive",
    updates="retrieved",
    alignment="all",
    security="verified",
    min_clients=2,
    max_clients=1000,
    largest=8.0,
)


SPARSE_ALONE = [Sparse("a", rows=10, select=2)]


def task(**changes: Any) -> Task:
    fields = {"name": "t", "blocks": SPARSE_ALONE, "ring": Ring(64, fraction_bits=24)}
    return Task(**(fields | changes))


# ---- canonical form


def test_canonical_bytes_are_plain_messagepack() -> None:
    plain = msgpack.unpackb(GOODS.canonical())
    assert list(plain) == [field.name for field in msgspec.structs.fields(Task)]
    assert plain["blocks"] == [
        {"type": "sparse", "name": "items", "rows": 197_372, "select": 418, "width": 18, "stash": 1},
        {"type": "dense", "name": "head", "size": 64_327},
    ]
    assert plain["ring"] == {"bits": 64, "fraction_bits": 24}


def test_each_field_is_of_one_topic() -> None:
    fields = [field for topic in TOPICS for field in topic.FIELDS]
    assert sorted(fields) == sorted(field.name for field in msgspec.structs.fields(Task))
    for topic in TOPICS:
        assert {field for only in topic.ONLY.values() for field in only} <= set(topic.FIELDS)


def test_a_task_shows_what_is_not_as_ever_by_topic_and_is_explained_in_that_order() -> None:
    shown = repr(task(updates="any", min_contributors=5, sample=20, apply="mean")).splitlines()
    labels = [line.strip().partition(":")[0] for line in shown[1:]]
    assert labels == ["blocks", "who takes part", "what is summed", "what protects", "what runs"]
    for said, line in zip(("sample=20", "apply='mean'", "min_contributors=5", "updates='any'"), shown[2:], strict=True):
        assert said in line
    assert not any("None" in line or "stash" in line for line in shown)
    lines = [line.partition(":")[0].strip() for line in str(Task.__doc__).splitlines() if line.startswith(" " * 8)]
    explained = [name for name in lines if name in Task.__struct_fields__]
    assert explained[0] == "name"
    assert sorted(explained) == sorted(Task.__struct_fields__)
    later = [
        next(topic for topic in TOPICS if name in topic.FIELDS).__name__.rpartition(".")[2] for name in explained[6:]
    ]
    assert later == sorted(later, key=["taking_part", "summing", "protecting", "running"].index)


def test_equal_tasks_have_equal_digests() -> None:
    assert task().digest() == task(blocks=(Sparse("a", rows=10, select=2, width=1, stash=0),)).digest()
    assert task(largest=5).digest() == task(largest=5.0).digest()


@in_turn(
    "changes",
    [
        {"name": "u"},
        {"blocks": [Sparse("b", rows=10, select=2)]},
        {"blocks": [Sparse("a", rows=11, select=2)]},
        {"blocks": [Sparse("a", rows=10, select=3)]},
        {"blocks": [Sparse("a", rows=10, select=2, width=2)]},
        {"blocks": [Sparse("a", rows=10, select=2, stash=1)]},
        {"blocks": [Sparse("a", rows=10, select=2), Dense("d", size=1)]},
        {"blocks": [Dense("d", size=1), Sparse("a", rows=10, select=2)]},
        {"ring": Ring(64, fraction_bits=23)},
        {"ring": Ring(128, fraction_bits=24)},
        {"selection": "fixed"},
        {"updates": "any"},
        {"alignment": "union"},
        {"security": "semi-honest"},
        {"min_clients": 17},
        {"max_clients": 999},
        {"largest": 1.0},
        {"ring": Ring(64, fraction_bits=16), "bound": 1.0},
        {"protocol": "psr", "ring": None},
        {"protocol": "psu", "ring": None},
    ],
)
def test_every_field_is_in_the_digest(changes: dict[str, Any]) -> None:
    assert task(**changes).digest() != task().digest()


def test_the_order_of_blocks_is_in_the_digest() -> None:
    first, second = Sparse("a", rows=10, select=2), Dense("d", size=1)
    assert task(blocks=[first, second]).digest() != task(blocks=[second, first]).digest()


# ---- one protocol alone


def test_a_task_that_only_retrieves_has_neither_ring_nor_minimum() -> None:
    alone = Task(name="t", protocol="psr", blocks=[Sparse("a", rows=10, select=2), Dense("d", size=1)], max_clients=1)
    assert (alone.min_clients, alone.quorum, alone.verified) == (None, 0, False)
    assert alone.round_protocols == ("psr",)
    assert Task.parse(alone.canonical(), "S0") == alone


def test_a_task_that_only_finds_unions_has_no_model() -> None:
    alone = Task(name="t", protocol="psu", blocks=[Sparse("a", rows=10, select=2)], max_clients=20)
    assert (alone.min_clients, alone.finds_unions, alone.model_blocks) == (16, True, ())
    assert alone.round_protocols == ("psu",)
    assert Task.parse(alone.canonical(), "S0") == alone


def test_the_minimum_that_is_not_given_is_the_ordinary_one() -> None:
    assert task() == task(min_clients=16)
    assert task(alignment="union").round_protocols == ("psu", "ssa")


# ---- parsing


@pytest.mark.parametrize("original", [GOODS, task(), task(blocks=[Dense("d", size=3)], largest=1)])
def test_parse_inverts_canonical(original: Task) -> None:
    again = Task.parse(original.canonical(), "S1")
    assert again == original
    assert again.canonical() == original.canonical()


def changed(**fields: Any) -> bytes:
    return bytes(msgpack.packb(msgpack.unpackb(GOODS.canonical()) | fields))


HOSTILE = {
    "empty": b"",
    "not messagepack": b"\xc1",
    "a number": b"\x01",
    "an empty map": b"\x80",
    "trailing bytes": GOODS.canonical() + b"\x00",
    "an unknown field": changed(more=1),
    "text for a number": changed(min_clients="2"),
    "a boolean for a number": changed(min_clients=True),
    "a float for an integer": changed(min_clients=2.0),
    "bytes for text": changed(name=b"goods"),
    "an unknown choice": changed(security="none"),
    "no blocks": changed(blocks=[]),
    "a nameless block": changed(blocks=[{"type": "dense", "size": 4}]),
    "a block of an unknown kind": changed(blocks=[{"type": "other", "name": "x", "size": 4}]),
    "an impossible block": changed(blocks=[{"type": "sparse", "name": "x", "rows": 4, "select": 5}]),
    "33 blocks": changed(blocks=[{"type": "dense", "name": str(i), "size": 4} for i in range(33)]),
    "65 blocks": changed(blocks=[{"type": "dense", "name": str(i), "size": 4} for i in range(65)]),
    "an impossible ring": changed(ring={"bits": 65, "fraction_bits": 0}),
    "a largest value that wraps": changed(largest=1e300),
    "a largest value that is not a number": changed(largest=float("nan")),
    "a name too long": changed(name="n" * 257),
    "deep nesting": b"\x91" * 5000,
    "an extension": changed(name=msgpack.ExtType(5, b"x")),
    "text that is not utf-8": b"\x81\xa4name\xa1\xff",
    "another order of fields": msgpack.packb(dict(reversed(msgpack.unpackb(GOODS.canonical()).items()))),
    "an integer where the canonical form has a float": changed(largest=8),
    "defaults left out": msgpack.packb({k: v for k, v in msgpack.unpackb(GOODS.canonical()).items() if k != "updates"}),
}


@in_turn("data", HOSTILE.values())
def test_hostile_bytes_are_a_violation_by_their_source(data: bytes) -> None:
    with pytest.raises(PeerViolationError, match=r"^S1: sent a task that (cannot be read|is not in canonical form)"):
        Task.parse(data, "S1")


def test_every_cut_is_refused() -> None:
    whole = task().canonical()
    for length in range(len(whole)):
        with pytest.raises(PeerViolationError):
            Task.parse(whole[:length], "S0")


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(PeerViolationError):
        Task.parse(data, "S0")


# ---- refusals

REFUSALS = {
    "no name": (lambda: task(name=""), "task: a name of 1 to 64 printable characters expected, got ''"),
    "a name too long": (lambda: task(name="n" * 65), "task: a name of 1 to 64 printable characters expected"),
    "an unprintable name": (lambda: task(name="a\n"), r"got 'a\\n'"),
    "a name that is not text": (lambda: task(name=5), "got 5"),
    "half a surrogate pair": (lambda: task(name="\ud800"), "printable characters expected"),
    "a block's name": (lambda: Dense("", size=1), "block: a name of 1 to 64 printable characters expected, got ''"),
    "no rows": (lambda: Sparse("a", rows=0, select=1), "a: rows must be an integer from 1 to 4294967296, not 0"),
    "too many rows": (lambda: Sparse("a", rows=2**32 + 1, select=1), "a: rows must be .* not 4294967297"),
    "select nothing": (lambda: Sparse("a", rows=5, select=0), "a: select must be an integer from 1 to 5, not 0"),
    "select too many": (lambda: Sparse("a", rows=5, select=6), "a: select must be an integer from 1 to 5, not 6"),
    "no width": (lambda: Sparse("a", rows=5, select=1, width=0), "a: width must be .* from 1 to 1048576, not 0"),
    "too much stash": (lambda: Sparse("a", rows=5, select=1, stash=65), "a: stash must be .* from 0 to 64, not 65"),
    "negative stash": (lambda: Sparse("a", rows=5, select=1, stash=-1), "a: stash must be .* from 0 to 64, not -1"),
    "rows as a float": (lambda: Sparse("a", rows=5.0, select=1), "a: rows must be an integer .* not 5.0"),  # type: ignore[arg-type]
    "rows as a boolean": (lambda: Sparse("a", rows=True, select=1), "a: rows must be an integer .* not True"),
    "size 0": (lambda: Dense("d", size=0), "d: size must be an integer from 1 to 4294967296, not 0"),
    "no blocks": (lambda: task(blocks=[]), "task: 1 to 32 blocks expected, got 0"),
    "33 blocks": (lambda: task(blocks=[Dense(str(i), size=1) for i in range(33)]), "1 to 32 blocks expected, got 33"),
    "blocks as a number": (lambda: task(blocks=5), "task: a list of blocks expected, got 5"),
    "a block that is none": (lambda: task(blocks=["items"]), "every block must be a Sparse or a Dense"),
    "one name twice": (lambda: task(blocks=[Dense("d", size=1)] * 2), r"names must differ, got \['d', 'd'\]"),
    "a ring that is none": (lambda: task(ring=64), "task: ring must be a Ring, not 64"),
    "a selection": (lambda: task(selection="x"), r"selection must be one of \('adaptive', 'fixed'\), not 'x'"),
    "updates": (lambda: task(updates="x"), r"updates must be one of \('retrieved', 'any'\), not 'x'"),
    "an alignment": (lambda: task(alignment=None), r"alignment must be one of \('all', 'union'\), not None"),
    "a protocol": (lambda: task(protocol="x"), r"protocol must be one of \('ssa', 'psr', 'psu'\), not 'x'"),
    "no ring": (lambda: task(ring=None), "task: ring must be a Ring, not None"),
    "a ring where nothing is summed": (
        lambda: task(protocol="psr"),
        "task: ring=.* contradicts protocol='psr': rounds of this protocol have no updates; leave it out",
    ),
    "a ring where unions are found": (lambda: task(protocol="psu"), "task: ring=.* contradicts protocol='psu'"),
    "a minimum for retrievals": (
        lambda: task(protocol="psr", ring=None, min_clients=2),
        "task: min_clients=2 contradicts protocol='psr': rounds of this protocol end by time",
    ),
    "the largest value of nothing": (
        lambda: task(protocol="psr", ring=None, largest=1.0),
        "task: largest=1.0 contradicts protocol='psr'",
    ),
    "updates of any rows of nothing": (
        lambda: task(protocol="psu", ring=None, updates="any"),
        "task: updates='any' contradicts protocol='psu'",
    ),
    "the mean of nothing": (
        lambda: task(protocol="psr", ring=None, apply="mean"),
        "task: apply='mean' contradicts protocol='psr'",
    ),
    "retrievals on a union": (
        lambda: task(protocol="psr", ring=None, alignment="union"),
        "task: alignment='union' contradicts protocol='psr': rounds of this protocol take no submissions",
    ),
    "a session of retrievals": (
        lambda: task(protocol="psr", ring=None, selection="fixed"),
        "task: selection='fixed' contradicts protocol='psr': rounds of this protocol take no submissions",
    ),
    "unions twice": (
        lambda: task(protocol="psu", ring=None, alignment="union"),
        "task: alignment='union' contradicts protocol='psu': every round of this protocol finds a union",
    ),
    "the union of fixed rows": (
        lambda: task(protocol="psu", ring=None, selection="fixed"),
        "task: selection='fixed' contradicts protocol='psu': with fixed rows",
    ),
    "retrievals of dense blocks alone": (
        lambda: task(protocol="psr", ring=None, blocks=[Dense("d", size=1)]),
        "task: protocol='psr' needs a sparse block",
    ),
    "the union of a dense block": (
        lambda: task(protocol="psu", ring=None, blocks=[Sparse("a", rows=10, select=2), Dense("d", size=1)]),
        "task: protocol='psu' takes sparse blocks alone",
    ),
    "a security": (lambda: task(security=1), r"security must be one of \('verified', 'semi-honest'\), not 1"),
    "one client": (lambda: task(min_clients=1), "task: min_clients must be an integer from 2 to 1000000, not 1"),
    "fewer than the minimum": (
        lambda: task(max_clients=15),
        "max_clients must be an integer from 16 to 1000000, not 15",
    ),
    "too many to tell each the names of all": (
        lambda: task(participants="names", max_clients=10_001),
        'task: with participants="names" every client is told all names, so max_clients is at most 10,000, not 10,001',
    ),
    "too many clients": (lambda: task(max_clients=1_000_001), "from 16 to 1000000, not 1000001"),
    "largest 0": (lambda: task(largest=0), "largest must be a number of at least 5.96.*e-08, .* not 0"),
    "a negative largest": (lambda: task(largest=-1.0), "largest must be a number of at least .* not -1.0"),
    "largest below the unit": (lambda: task(largest=2.0**-25), "largest must be a number of at least"),
    "largest not a number": (lambda: task(largest=float("nan")), "largest must be a number of at least .* not nan"),
    "largest as text": (lambda: task(largest="5"), "largest must be a number .* not '5'"),
    "largest as a boolean": (lambda: task(largest=True), "largest must be a number .* not True"),
    "infinity": (lambda: task(largest=float("inf")), "1000 clients × largest value inf could wrap 64 bits with 24"),
    "an integer no float holds": (lambda: task(largest=10**400), "could wrap 64 bits"),
    "a sum that wraps": (
        lambda: task(largest=549_755_814),
        "1000 clients × largest value 549755814 could wrap 64 bits with 24 behind the point; the largest possible is "
        "549755813.8",
    ),
}


@in_turn("make, message", REFUSALS.values())
def test_refusals_say_what_is_wrong(make: Any, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        make()


def test_the_largest_value_named_in_a_refusal_is_accepted() -> None:
    with pytest.raises(MisuseError) as refusal:
        task(largest=1e300)
    largest = float(str(refusal.value).rsplit(" ", 1)[1])
    assert task(largest=largest).largest_value == largest == task().largest_value


def test_an_unknown_block_is_refused_with_those_there_are() -> None:
    assert GOODS.block("head") == Dense("head", size=64_327)
    with pytest.raises(MisuseError, match=r"task 'goods' has no block 'tail'; it has \['items', 'head'\]"):
        GOODS.block("tail")


def test_limits_themselves_are_allowed() -> None:
    Sparse("a" * 64, rows=2**32, select=2**32, width=2**20, stash=64)
    task(blocks=[Dense(str(i), size=2**32) for i in range(32)], min_clients=2, max_clients=1_000_000)
    task(min_clients=1_000_000, max_clients=1_000_000)


# ---- values


def test_largest_integer_follows_from_clients_or_from_the_task() -> None:
    assert task().largest_integer == (2**63 - 1) // 1000
    assert task(largest=8).largest_integer == 8 * 2**24
    assert task(largest=8).largest_value == 8.0


def test_weights_and_blocks_by_kind() -> None:
    assert [block.weights for block in GOODS.blocks] == [197_372 * 18, 64_327]
    assert [block.name for _, block in GOODS.sparse_blocks()] == ["items"]
    assert [block.name for _, block in GOODS.dense_blocks()] == ["head"]
    assert GOODS.verified
    assert not task(security="semi-honest").verified


def test_a_task_is_immutable_and_can_be_a_key() -> None:
    with pytest.raises(AttributeError):
        GOODS.name = "other"  # type: ignore[misc]
    assert {GOODS: 1}[Task.parse(GOODS.canonical(), "S0")] == 1


# ---- who takes part


@pytest.mark.parametrize("sample", [16, 50, 1000, 0.01, 1e-9, 1.0, None])
def test_a_sample_is_a_number_or_a_fraction(sample: float | None) -> None:
    made = task(sample=sample, min_clients=16, max_clients=1000)
    assert Task.parse(made.canonical(), "S0") == made
    assert type(Task.parse(made.canonical(), "S0").sample) is type(sample)


@pytest.mark.parametrize(
    ("sample", "match"),
    [
        (0.0, "above 0 and at most 1, not 0.0"),
        (1.01, "above 0 and at most 1, not 1.01"),
        (-0.5, "above 0 and at most 1"),
        (float("nan"), "above 0 and at most 1"),
        (15, "an integer from 16 to 1000, not 15"),
        (1, "an integer from 16 to 1000, not 1"),
        (1001, "an integer from 16 to 1000, not 1001"),
        (True, "an integer from 16 to 1000, not True"),
        ("half", "an integer from 16 to 1000, not 'half'"),
    ],
)
def test_a_sample_that_cannot_be_drawn_is_refused(sample: object, match: str) -> None:
    with pytest.raises(MisuseError, match=match):
        task(sample=sample, min_clients=16, max_clients=1000)


def test_a_task_that_only_retrieves_draws_nobody() -> None:
    with pytest.raises(MisuseError, match=r"sample=0.5 contradicts protocol='psr'"):
        Task(name="lookup", protocol="psr", blocks=[Sparse("a", rows=10, select=2)], sample=0.5)


# ---- bounds


def bounded(**changes: Any) -> Task:
    return task(**({"ring": Ring(64, fraction_bits=16), "bound": 1.0} | changes))


def test_a_bound_is_a_number_of_the_values_units() -> None:
    assert bounded(bound=1).digest() == bounded(bound=1.0).digest() != bounded(bound=2.0).digest()
    assert bounded(bound=1.5).bound_integer == 3 * 2**15
    assert task().bound_integer == 0
    assert bounded(bound_proof="projected").digest() != bounded().digest()


@in_turn(
    "changes, match",
    [
        ({"bound": 0.0}, "bound must be a number above 0, not 0.0"),
        ({"bound": float("inf")}, "above 0, not inf"),
        ({"bound": float("nan")}, "above 0, not nan"),
        ({"bound": 10**400}, "above 0, not 1000"),
        ({"bound": True}, "above 0, not True"),
        ({"bound": 1e-9}, "the smallest value of"),
        ({"bound_proof": "guessed"}, "bound_proof must be one of"),
        ({"bound": None, "bound_proof": "projected"}, "add bound"),
        ({"security": "semi-honest"}, "contradicts bound"),
        ({"ring": Ring(64, fraction_bits=40)}, r"Ring\(64, fraction_bits=23\), or Ring\(128"),
        ({"ring": Ring(32, fraction_bits=10)}, 'or bound_proof="projected"'),
        ({"protocol": "psu", "ring": None}, "bound=1.0 contradicts protocol='psu'"),
        ({"protocol": "psr", "ring": None}, "bound=1.0 contradicts protocol='psr'"),
    ],
)
def test_a_bound_that_cannot_be_kept_is_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(MisuseError, match=match):
        bounded(**changes)


WEIGHED = {
    "blocks": (Sparse("a", rows=10, select=2), Dense("n", size=1)),
    "apply": "weighted-mean",
    "weights": "n",
    "largest_weight": 0.5,
}


def test_a_largest_weight_is_rounded_as_weights_are() -> None:
    made = bounded(**WEIGHED | {"largest_weight": 0.1})
    assert Task.parse(made.canonical(), "S0") == made
    assert made.largest_weight_integer == int(made.ring.to_integers(made.ring.encode(np.array([0.1]), 2**30, "w"))[0])
    assert bounded().largest_weight_integer == 0
    assert union_task(bounded(**WEIGHED, alignment="union")).largest_weight is None


@in_turn(
    "changes, match",
    [
        ({"largest_weight": None}, "weights='n' with a bound needs largest_weight = …, .* use 1.0 if"),
        ({"largest_weight": 0.0}, "largest_weight must be a number above 0, not 0.0"),
        ({"largest_weight": float("nan")}, "above 0, not nan"),
        ({"largest_weight": True}, "above 0, not True"),
        ({"largest_weight": 1.5}, "at most bound=1: a weight is a part of what is bounded"),
        ({"largest_weight": 1e-9}, "at least 1.52587890625e-05, the ring's smallest value"),
        ({"bound": None}, "largest_weight needs both weights and a bound"),
        ({"apply": "sum", "weights": None}, "largest_weight needs both weights and a bound"),
        (
            {"protocol": "psu", "ring": None, "weights": None, "apply": "sum", "bound": None, "blocks": SPARSE_ALONE},
            "contradicts protocol='psu'",
        ),
    ],
)
def test_a_largest_weight_that_cannot_be_proved_is_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(MisuseError, match=match):
        bounded(**WEIGHED | changes)


def test_a_round_that_finds_a_union_proves_nothing() -> None:
    assert union_task(bounded(alignment="union")).bound is None


# ---- contributors


def test_contributors_are_counted_from_two_to_all() -> None:
    made = task(min_contributors=2, lying_clients=0, min_clients=2, max_clients=50)
    assert Task.parse(made.canonical(), "S0") == made
    assert task(min_contributors=50, min_clients=2, max_clients=50).digest() != made.digest()
    assert task(min_contributors=3, lying_clients=0, selection="fixed", updates="retrieved").min_contributors == 3
    assert task(min_contributors=3, lying_clients=0, updates="any").min_contributors == 3


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"min_contributors": 1}, "min_contributors must be an integer from 2 to 50, not 1"),
        ({"min_contributors": 51}, "min_contributors must be an integer from 2 to 50, not 51"),
        ({"min_contributors": 2.0}, "min_contributors must be an integer from 2 to 50, not 2.0"),
        ({"min_contributors": True}, "min_contributors must be an integer from 2 to 50, not True"),
        ({"security": "semi-honest"}, "security='semi-honest' contradicts min_contributors=2.*any number of times"),
        ({"alignment": "union"}, "alignment='union' contradicts min_contributors=2.*the union shows the rows"),
        ({"blocks": [Dense("d", size=3)]}, "add a sparse block, or use min_clients"),
        ({"lying_clients": 1}, "=2 does not withstand one client that lies: each counts up to 3 times .* at least 5"),
        (
            {"lying_clients": 2, "min_contributors": 7},
            "withstand 2 clients that lie.* use at least 8, or lying_clients=0",
        ),
        (
            {"lying_clients": 1, "min_contributors": 5, "blocks": [Sparse("a", rows=10, select=2, stash=1)]},
            "up to 4 times for a row.* use at least 6",
        ),
        ({"lying_clients": -1}, "lying_clients must be an integer from 0 to 50, not -1"),
        ({"min_contributors": None}, "lying_clients has no effect without min_contributors"),
    ],
)
def test_contributors_that_cannot_be_counted_are_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(MisuseError, match=match):
        task(**{"min_contributors": 2, "lying_clients": 0, "min_clients": 2, "max_clients": 50} | changes)


@pytest.mark.parametrize("protocol", ["psr", "psu"])
def test_where_no_sums_are_opened_nobody_counts(protocol: str) -> None:
    with pytest.raises(MisuseError, match=f"min_contributors=2 contradicts protocol='{protocol}'"):
        Task(name="t", protocol=protocol, blocks=[Sparse("a", rows=10, select=2)], min_contributors=2, lying_clients=0)  # type: ignore[arg-type]


def test_answers_about_all_clients_fit_into_one_message() -> None:
    """Exact answers grow with the update; projected ones do not."""
    large = {"blocks": (Dense("head", size=2_000_000),), "bound": 0.01, "max_clients": 10_000}
    with pytest.raises(MisuseError, match=r"take 640,320,000 bytes, .*bound_proof=.projected") as refused:
        bounded(**large)
    assert "10,000 clients" in str(refused.value)
    assert bounded(**large, bound_proof="projected")
