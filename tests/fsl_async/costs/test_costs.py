"""Predicted bytes against bytes on the wire, predicted blocks against counted ones, and the paper's own formulae."""

import math
from dataclasses import replace

import numpy as np
import pytest
import trio

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.costs import message_sizes as costs
from fsl_async.costs.message_sizes import Setting, Traffic
from fsl_async.costs.paper import MEBIBYTE, RATES, TABLE, Formula
from fsl_async.costs.variants import Name, Question, build, largest_select, retrieval_round, union_bytes, union_round
from fsl_async.geometry import geometry_of
from fsl_async.union import UnionBlock, pack_union
from fsl_async.wire.messages import AskedList, TossCommitment, TossReveal
from fsl_async.wire.public_part import Trees
from parties import Network, simulate
from parties.commands.plan.plan import framed, question_of, statement_bytes
from tests import ROOT
from tests.support.cases import in_turn, one_in
from transport.noise import CipherState
from transport.records import RecordWriter, wire_size

NAMES = ("alice", "bob-of-another-length")
DTYPES = {"f4": np.float32, "f8": np.float64, "i2": np.int16}


def task_of(*blocks, bits: int = 64, **fields) -> Task:
    return Task(name="planned", blocks=blocks, ring=Ring(bits, fraction_bits=8), min_clients=2, max_clients=9, **fields)


def model_of(task: Task, dtype: str) -> dict[str, np.ndarray]:
    shapes = {b.name: (b.rows, b.width) if isinstance(b, Sparse) else (b.size,) for b in task.blocks}
    return {name: np.zeros(shape, dtype=DTYPES[dtype]) for name, shape in shapes.items()}


def setting_of(task: Task, dtype: str, number: int, clients: tuple[str, ...] = NAMES) -> Setting:
    setting = Setting(clients=clients, dtype=dtype, number=number)
    return replace(setting, statement_bytes=statement_bytes(setting, costs.specimen_config(task, setting)))


class Meter:
    """Bytes on the wire of one client and between the servers, since last asked."""

    def __init__(self, net: Network, client) -> None:
        self.net, self.client = net, client
        self.before = self.now()

    def now(self) -> tuple[int, int, int]:
        link = sum(server.link.bytes_sent for server in self.net.servers)
        received = sum(server.link.bytes_received for server in self.net.servers)
        assert link == received, "bytes between the servers are still on their way"
        return self.client.bytes_sent, self.client.bytes_received, link

    async def passed(self) -> tuple[int, int, int]:
        await trio.testing.wait_all_tasks_blocked()
        before, self.before = self.before, self.now()
        up, down, link = (now - then for now, then in zip(self.before, before, strict=True))
        return up, down, link


def bytes_of(*parts: Traffic) -> tuple[int, int, int]:
    whole = sum(parts, Traffic())
    return framed(whole.up), framed(whole.down), framed(whole.link)


SPARSE = Sparse("rows", rows=700, select=24)
SHAPES = {
    "single weights": (task_of(SPARSE), "f4"),
    "semi-honest": (task_of(SPARSE, security="semi-honest"), "f4"),
    "semi-honest, four positions to a leaf": (task_of(SPARSE, bits=32, security="semi-honest"), "f4"),
    "wide rows": (task_of(Sparse("rows", rows=300, select=9, width=18), bits=32), "f8"),
    "wide ring": (task_of(Sparse("rows", rows=300, select=9, width=3), bits=128), "f4"),
    "integers": (task_of(SPARSE, bits=32), "i2"),
    "stash": (task_of(Sparse("rows", rows=300, select=9, stash=2)), "f4"),
    "with a dense block": (task_of(SPARSE, Dense("head", size=123)), "f4"),
    "several blocks": (
        task_of(Sparse("a", rows=90, select=90), Dense("b", size=5), Sparse("c", rows=2000, select=3, width=2)),
        "f8",
    ),
    "trees of its own": (task_of(SPARSE, updates="any"), "f4"),
    "contributors": (
        task_of(Sparse("rows", rows=3, select=3, width=2), Dense("d", size=2), min_contributors=2, lying_clients=0),
        "f4",
    ),
    "longer than a record": (task_of(Sparse("rows", rows=40_000, select=900, width=8)), "f4"),
}


@in_turn("name", SHAPES)
async def test_bytes_of_a_round_are_those_on_the_wire(name: str) -> None:
    task, dtype = SHAPES[name]
    rides = task.updates == "retrieved"
    sparse = {block.name: np.arange(3) for _, block in task.sparse_blocks()}
    wanted = sparse | {block.name: ... for _, block in task.dense_blocks()}
    updates = {block.name: (np.arange(3), np.ones((3, block.width))) for _, block in task.sparse_blocks()}
    async with (
        simulate(task, model_of(task, dtype), seed=5) as net,
        net.client(NAMES[0]) as alice,
        net.client(NAMES[1]) as bob,
    ):
        setting = setting_of(task, dtype, 1)
        meter = Meter(net, alice)
        await alice.retrieve({})
        assert await meter.passed() == bytes_of(costs.entering(costs.specimen_config(task, setting), known=False))
        await alice.retrieve(wanted)
        downloads = [costs.download(b.name, b.size * setting.weight_bytes) for _, b in task.dense_blocks()]
        assert await meter.passed() == bytes_of(costs.retrieval(planned(task), setting), *downloads)
        receipt = await alice.submit(updates)
        submitted = costs.submission(planned(task), Trees.RETRIEVAL if rides else Trees.OWN, setting)
        assert receipt.bytes_sent == framed(submitted.up)
        assert await meter.passed() == bytes_of(submitted)
        await bob.submit(updates)
        bobs = costs.submission(planned(task), Trees.OWN, setting_of(task, dtype, 1, NAMES[::-1]))
        assert await meter.passed() == (0, 0, framed(bobs.link))
        await finish(net, task, setting, meter)
        await alice.outcome()
        assert await meter.passed() == bytes_of(costs.outcome(setting))


@pytest.mark.parametrize("name", ["single weights", "several blocks", "trees of its own"])
async def test_bytes_of_whole_blocks_are_those_on_the_wire(name: str) -> None:
    task, dtype = SHAPES[name]
    async with simulate(task, model_of(task, dtype), seed=5) as net, net.client(NAMES[0]) as alice:
        setting = setting_of(task, dtype, 1)
        meter = Meter(net, alice)
        await alice.retrieve({})
        await meter.passed()
        await alice.retrieve(dict.fromkeys((block.name for block in task.blocks), ...))
        assert await meter.passed() == bytes_of(costs.fetching_whole(planned(task), setting))
        await alice.submit({})
        assert await meter.passed() == bytes_of(costs.submission(planned(task), Trees.OWN, setting))


async def finish(net: Network, task: Task, setting: Setting, meter: Meter) -> None:
    """End the round; what the servers send for it is as predicted, and the next one's toss at least as much."""
    begun = len(net.transcript)
    await net.finish_round()
    _, _, link = await meter.passed()
    tosses = [note.message for note in net.transcript[begun:] if isinstance(note.message, TossCommitment | TossReveal)]
    tossed = framed([costs.message_bytes(message) for message in tosses])
    assert link == framed(costs.round_messages(planned(task), setting)) + tossed
    assert set(costs.toss_messages(setting.number + 1)) == {costs.message_bytes(message) for message in tosses}
    assert tossed >= framed(costs.toss_messages(setting.number + 1))


@pytest.mark.parametrize("security", ["verified", "semi-honest"])
@pytest.mark.parametrize("blocks", [(SPARSE,), (SPARSE, Dense("head", size=50))], ids=["sparse", "with a dense block"])
async def test_bytes_of_a_session_are_those_on_the_wire(security: str, blocks: tuple) -> None:
    task = task_of(*blocks, security=security, selection="fixed")
    update = {"rows": ([1, 2], np.ones((2, 1)))}
    async with (
        simulate(task, model_of(task, "f4"), seed=6) as net,
        net.client(NAMES[0]) as alice,
        net.client(NAMES[1]) as bob,
    ):
        for number in (1, 2, 3):
            setting = setting_of(task, "f4", number)
            meter = Meter(net, alice)
            await alice.retrieve({"rows": [1, 2]})
            await alice.submit(update)
            later = number > 1
            assert await meter.passed() == bytes_of(
                costs.entering(costs.specimen_config(task, setting), known=later),
                costs.recall(planned(task), setting) if later else costs.retrieval(planned(task), setting),
                costs.submission(planned(task), Trees.SESSION if later else Trees.RETRIEVAL, setting),
            )
            await bob.submit(update)
            await meter.passed()
            await finish(net, task, setting, meter)
            await alice.outcome()
            await bob.outcome()
            assert await meter.passed() == bytes_of(costs.outcome(setting))


UNIONS = {"moved plainly": (400, 40, 60), "moved by trees": (24, 2, 4)}
"""By name: rows, how many of them each of two clients selects, and how many both do together."""


def united(select: int, union: int) -> list[np.ndarray]:
    """Two selections of every fifth row, some of them shared, as spread out as the planner takes them to be."""
    first = np.arange(0, 5 * select, 5)
    return [first, first + 5 * (union - select)]


@pytest.mark.parametrize("security", ["verified", "semi-honest"])
@pytest.mark.parametrize("selection", ["adaptive", "fixed"])
@pytest.mark.parametrize("case", UNIONS)
async def test_bytes_of_a_union_are_those_on_the_wire(case: str, selection: str, security: str) -> None:
    rows, select, union = UNIONS[case]
    question = question_of(
        rows=rows, select=select, width=2, bits=32, clients=2, rounds=2, security=security, union=union, dtype="f4"
    )
    variant = build(Name.UNION if selection == "adaptive" else Name.BOTH, question)
    assert (variant.plain == ("rows",)) == (
        case == "moved plainly" or (security, selection) == ("semi-honest", "adaptive")
    )
    phases = variant.first.phases
    task = Task(
        name="plan",
        blocks=[Sparse("rows", rows=rows, select=select, width=2)],
        ring=Ring(32, fraction_bits=8),
        alignment="union",
        selection=selection,
        security=security,
        min_clients=2,
        max_clients=2,
    )
    names = question.setting().clients
    chosen = united(select, union)
    async with (
        simulate(task, model_of(task, "f4"), seed=7) as net,
        net.client(names[0]) as alice,
        net.client(names[1]) as bob,
    ):
        meter = Meter(net, alice)
        for client, own in zip((alice, bob), chosen, strict=True):
            await client.unite({"rows": own})
        up, down, forwarded = await meter.passed()
        outcome = await net.finish_round()
        await meter.passed()
        await alice.outcome()
        ended_up, ended_down, _ = await meter.passed()
        found = outcome.union["rows"]
        assert len(found) == union
        unite = bytes_of(phases["unite"])
        assert (up + ended_up, down + ended_down, forwarded) == (unite[0], unite[1], 2 * unite[2])
        for part in (variant.first, variant.later)[: 2 if selection == "fixed" else 1]:
            await bob.outcome()
            await meter.passed()
            await alice.retrieve({"rows": chosen[0]})
            await alice.submit({"rows": (chosen[0], np.ones((select, 2)))})
            expected = bytes_of(*(part.phases[name] for name in ("enter", "list", "retrieve", "submit")))
            measured = await meter.passed()
            assert len(pack_union(found, rows)) == union_bytes(rows, union)
            assert measured == expected
            await bob.submit({})
            await net.finish_round()
            await meter.passed()
            await alice.outcome()
            assert (await meter.passed())[:2] == bytes_of(part.phases["outcome"])[:2]


ALONE = (Sparse("rows", rows=700, select=24, width=3), Sparse("more", rows=90, select=5))


@pytest.mark.parametrize("security", ["verified", "semi-honest"])
async def test_bytes_of_retrievals_alone_are_those_on_the_wire(security: str) -> None:
    task = Task(name="alone", protocol="psr", blocks=[*ALONE, Dense("head", size=7)], security=security, max_clients=9)
    async with simulate(task, model_of(task, "f4"), seed=5) as net, net.client(NAMES[0]) as alice:
        expected = retrieval_round(task, setting_of(task, "f4", 1))
        meter = Meter(net, alice)
        await alice.retrieve({"rows": [1, 2], "head": ...})
        assert await meter.passed() == bytes_of(expected.phases["enter"], expected.phases["retrieve"])
        await net.finish_round()
        await net.servers[0].next_round(1)
        assert (await meter.passed())[2] == framed(expected.link)  # with the toss of the next round


async def test_bytes_of_a_union_alone_are_those_on_the_wire() -> None:
    task = Task(name="alone", protocol="psu", blocks=ALONE, min_clients=2, max_clients=9)
    chosen = {"rows": [1, 2, 3], "more": [80]}
    async with simulate(task, {}, seed=5) as net, net.client(NAMES[0]) as alice, net.client(NAMES[1]) as bob:
        found = (UnionBlock("rows", 3, bytes(32)), UnionBlock("more", 1, bytes(32)))
        expected = union_round(task, setting_of(task, "f4", 1), found)
        meter = Meter(net, alice)
        await alice.unite(chosen)
        assert await meter.passed() == bytes_of(expected.phases["enter"], expected.phases["unite"])
        await bob.unite(chosen)
        await net.finish_round()
        await meter.passed()
        await alice.outcome()
        assert await meter.passed() == bytes_of(expected.phases["outcome"])
        assert {name: rows.tolist() for name, rows in (await alice.union()).items()} == chosen


def test_a_list_of_a_union_has_the_expected_length() -> None:
    draw = np.random.default_rng(8)
    for rows, union in ((10_000, 100), (100_000, 100), (5_000_000, 300), (10_000, 1250), (10_000, 9_000)):
        lengths = [len(pack_union(np.sort(draw.choice(rows, union, replace=False)), rows)) for _ in range(30)]
        assert union_bytes(rows, union) == pytest.approx(np.mean(lengths), rel=0.02), (rows, union)


def test_framing_is_that_of_the_record_layer() -> None:
    lengths = [0, 1, 100, 65_509, 65_510, 65_511, 200_000]
    for length in lengths:
        writer = RecordWriter(CipherState(bytes(32)))
        assert sum(map(len, writer.message([bytes(length)]))) == wire_size(length) == framed([length])


def test_a_message_with_bulk_is_as_long_as_its_encoding() -> None:
    message = costs.Share(costs.DIGEST, costs.DIGEST)
    for bulk in (0, 1, 2, 70_000):
        assert costs.message_bytes(message, bulk) == sum(map(len, costs.encode(message, bytes(bulk))))


# ---- blocks


@in_turn("leaves", [1, 2, 3, 4, 5, 7, 8, 9, 100, 128, 129, 777])
def test_inner_nodes_of_a_tree_are_the_distinct_beginnings_of_paths_to_its_leaves(leaves: int) -> None:
    depth = (leaves - 1).bit_length()
    paths = {(level, leaf >> (depth - level)) for leaf in range(leaves) for level in range(depth)}
    assert costs.inner_nodes(leaves) == len(paths)


def test_blocks_of_one_forest_by_hand() -> None:
    task = task_of(Sparse("rows", rows=64, select=2, width=3))
    task = planned(task)
    forest = geometry_of(task, task.sparse(0)).bins
    trees, leaves, depth = forest.trees, forest.leaves, forest.depth
    assert forest.planes == 2
    nodes = costs.inner_nodes(leaves)
    setting = Setting(NAMES)
    assert costs.tree_work(task).client == trees * (2 + 2 * depth)
    retrieving = costs.retrieval_work(task, setting)
    assert (retrieving.client, retrieving.server) == (0, trees * (1 + nodes))
    assert (retrieving.read_rows, retrieving.read_bytes) == (3 * 64, 3 * 64 * 3 * 4)
    submitting = costs.submission_work(task, Trees.RETRIEVAL)
    assert submitting.client == trees * (2 * 2 + 2) + leaves
    assert submitting.server == trees * (1 + nodes + 2 * leaves + leaves) + 2 * leaves
    hinting = costs.submission_work(task, Trees.SESSION)
    assert (hinting.client, hinting.server) == (trees * 4, trees * (1 + nodes + 2 * leaves))


def test_the_design_document_bounds_the_blocks_of_a_leaf() -> None:
    for bits, width in ((32, 1), (64, 18), (128, 1)):
        task = task_of(Sparse("rows", rows=2**16, select=650, width=width), bits=bits)
        task = planned(task)
        forest = geometry_of(task, task.sparse(0)).bins
        all_leaves = forest.trees * forest.leaves
        each = costs.submission_work(task, Trees.RETRIEVAL).server / all_leaves
        assert each <= 1 + math.ceil(width * bits / 128) + 2 + 0.05
        assert all_leaves == pytest.approx(3 * 2**16, rel=0.02)


# ---- variants


QUESTION = Question(197_372, 418, 18, 64, 100, 10, "verified", 41_800)


def test_upload_of_the_public_part_follows_the_design() -> None:
    variant = build(Name.MEGA, QUESTION)
    (shape,) = variant.shapes
    bits = shape.bins * (128 * shape.depth + 128 + 18 * 64)
    parts = variant.first.phases
    sent = sum(parts["retrieve"].up) + sum(parts["submit"].up)
    assert 0 <= sent - bits / 8 < 1200  # what is left are the messages around it


def test_epochs_save_trees_and_proofs_but_no_hint() -> None:
    variant = build(Name.EPOCHS, QUESTION)
    hint = variant.shapes[0].bins * 18 * 8
    assert hint < sum(variant.later.traffic.up) < hint + 900
    assert sum(variant.first.traffic.up) > 2 * hint
    assert variant.later.traffic.down[:2] == variant.first.traffic.down[:2]


def test_trivial_sends_the_model_and_a_seed() -> None:
    variant = build(Name.TRIVIAL, QUESTION)
    weights = 197_372 * 18
    assert 0 < sum(variant.first.phases["submit"].up) - weights * 8 < 700
    assert 0 < sum(variant.first.phases["retrieve"].down) - weights * 4 < 100


def test_a_model_beyond_one_block_is_shared_in_several() -> None:
    variant = build(Name.TRIVIAL, replace(QUESTION, rows=2**31, width=3))
    assert sum(variant.first.phases["retrieve"].down) == pytest.approx(3 * 2**31 * 4, rel=2e-6)


def test_a_small_union_of_wide_rows_saves_upload_for_it_moves_plainly() -> None:
    question = Question(100_000, 10, 64, 64, 10, 1, "verified", 10)
    union, alone = build(Name.UNION, question), build(Name.MEGA, question)
    assert union.plain == (question.block,)
    assert sum(union.first.traffic.up) < 0.4 * sum(alone.first.traffic.up)
    main = sum(union.first.phases["retrieve"].up + union.first.phases["submit"].up)
    assert 0 < main - 10 * 64 * 8 < 1000  # the rows of the union, and the messages around them


def test_the_documented_table_of_unions_is_what_comes_out() -> None:
    text = (ROOT / "docs/planner.md").read_text(encoding="utf-8")
    lines = text.split("| rows, select, width (64 bits, verified)")[1].split("\n\n")[0].splitlines()[2:]
    shape: tuple[int, ...] = ()
    assert len(lines) == 8
    for line in lines:
        block, found, *sent = (cell.strip() for cell in line.strip("|").split(" | "))
        shape = (
            tuple(int(n.replace(",", "").replace("2^20", str(2**20))) for n in block.split(", ")) if block else shape
        )
        question = Question(*shape, 64, 100, 1, "verified", int(found.partition(", by")[0].replace(",", "")))
        alone = Name.MEGA if shape[2] > 1 else Name.BASIC
        ways = [build(name, question) for name in (alone, Name.UNION, Name.EPOCHS, Name.BOTH)]
        assert all((way.plain == ()) == ("by trees" in found) for way in ways[1::2])
        now = [framed(way.first.traffic.up) for way in ways[:2]] + [framed(way.later.traffic.up) for way in ways[2:]]
        assert now == pytest.approx([int(number.replace(",", "")) for number in sent], rel=0.02), line


def test_a_large_union_costs_more_upload_than_it_saves() -> None:
    union, alone = build(Name.UNION, QUESTION), build(Name.MEGA, QUESTION)
    assert sum(union.first.traffic.up) > sum(alone.first.traffic.up)
    assert sum(union.first.link) < sum(alone.first.link) / 2
    assert union.first.steps == 2 * alone.first.steps


@pytest.mark.parametrize(("security", "bits"), one_in(2, ["verified", "semi-honest"], [32, 128]))
def test_the_crossover_is_the_last_selection_that_fits(security: str, bits: int) -> None:
    rows = 250
    question = Question(rows, 6, 1, bits, 2, 1, security, 6)

    def at(select: int):
        return build(Name.BASIC, replace(question, select=select, union=select))

    sent = {select: sum(at(select).first.traffic.up) for select in range(1, rows + 1)}
    for limit in (500, 4000, 9000, 20_000, 10**9):
        found = largest_select(lambda k, limit=limit: sent[k] <= limit, lambda k: at(k).shapes[0].stretch, rows)
        assert found == max((select for select, size in sent.items() if size <= limit), default=0), limit


# ---- the paper


def test_the_papers_table_follows_from_its_formula_up_to_the_last_digit() -> None:
    for cell in TABLE:
        digits = len(f"{cell.printed:g}".split(".")[1])
        assert abs(cell.computed() - cell.printed) < 10**-digits, cell
        assert (cell.computed(1.27) - cell.printed > 10**-digits) or cell.rows < 2**15, cell
    assert TABLE[-1].computed() == pytest.approx(1.25 * 0.1 * (9 * 130 + 128) / 8 + 16 / MEBIBYTE)


def test_no_one_rule_of_rounding_gives_the_papers_table() -> None:
    def cut(cell) -> float:
        return math.floor(cell.computed() * 1000) / 1000

    assert not all(cell.printed == cut(cell) for cell in TABLE[:6])
    assert not all(cell.printed == round(cell.computed(), 3) for cell in TABLE[:6])
    assert all(cell.printed in (cut(cell), round(cell.computed(), 3)) for cell in TABLE[:6])


def test_the_papers_rates() -> None:
    basic, union, mega = RATES
    assert Formula().rate(1) == pytest.approx(12.68, abs=0.005)
    assert math.floor(1000 * basic.formula.break_even) / 1000 == basic.printed  # 7.889 %, cut
    assert round(mega.formula.break_even, 3) == mega.printed
    assert round(union.formula.break_even, 3) == 0.132 != union.printed


def test_the_papers_hint_is_one_of_every_bin() -> None:
    assert Formula().hint_bits(1000) == 1.25 * 1000 * 128
    assert Formula().trivial_bits(2**20) / 8 / MEBIBYTE == pytest.approx(16, abs=1e-4)


@pytest.mark.parametrize("sample", [4, 16, 0.1, 1.0])
def test_a_task_that_draws_its_clients_is_planned_as_well(sample: float) -> None:
    blocks = [Sparse("items", rows=1000, select=5)]
    task = Task(name="t", blocks=blocks, ring=Ring(64), min_clients=4, max_clients=20, sample=sample)
    config = costs.specimen_config(task, costs.Setting(clients=("a", "b", "c", "d", "e")))
    assert config.sample is not None
    assert type(config).parse(config.canonical(), "S0") == config


async def test_the_lists_of_who_asked_are_those_on_the_wire() -> None:
    task = task_of(SPARSE, sample=1.0)
    async with (
        simulate(task, model_of(task, "f4"), seed=5) as net,
        net.client(NAMES[0]) as alice,
        net.client(NAMES[1]) as bob,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(alice.retrieve, {})
            nursery.start_soon(bob.retrieve, {})
            await net.draw()
        lists = [(note.message, note.bulk) for note in net.transcript if isinstance(note.message, AskedList)]
        setting = setting_of(task, "f4", 1)
        opened = costs.opening_messages(planned(task), setting)
        assert opened[-2:] == tuple(costs.message_bytes(message, bulk) for message, bulk in lists)
        assert opened[:-2] == costs.toss_messages(1)
