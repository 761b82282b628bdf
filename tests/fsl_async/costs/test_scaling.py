"""The scaling model: formulae against the figures that they were made from, limits against their parts."""

from dataclasses import replace

import pytest

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.costs.scaling import (
    ANOTHER_MACHINE,
    SEALED,
    HostCapacity,
    Line,
    Retrieval,
    Stage,
    Workers,
    capacity,
    evaluation,
    load_of,
    memory_bytes,
    stages,
    stored_bytes,
    worker_hourly,
)
from fsl_async.errors import MisuseError
from parties.cluster.partial_sum import MOST_SEALED
from tests import ROOT

LARGE = Task(name="large", blocks=(Sparse("items", rows=2**20, select=10_486),), ring=Ring(64))


def test_a_load_is_counted_from_the_trees_and_the_public_part() -> None:
    load = load_of(LARGE)
    assert (load.trees, load.leaves, load.planes) == (13_644, 13_644 * 231, 13_644 * 231)
    assert load.size == load.part == 2_073_904
    assert load.share == 2**20 * 8
    with_dense = load_of(replace_blocks(Dense("head", size=1000)))
    assert with_dense.size == with_dense.part + 4000 == load.part + 32 + 4000  # one of both servers has the share
    assert load_of(replace_settings(security="semi-honest")).trees == 0


def replace_blocks(*more) -> Task:
    return Task(name="large", blocks=(*LARGE.blocks, *more), ring=Ring(64))


def replace_settings(**settings) -> Task:
    return Task(name="large", blocks=LARGE.blocks, ring=Ring(64), **settings)


def test_evaluation_is_the_sum_of_its_four_terms() -> None:
    load = load_of(LARGE)
    constants = replace(ANOTHER_MACHINE, submission=0.6e-3, leaf=2.2e-9, plane=0.9e-9, proof=1.6e-9)
    expected = 0.6e-3 + load.leaves * (2.2 + 0.9) * 1e-9 + 1.6e-9 * 16 * load.trees
    assert evaluation(load, constants) == pytest.approx(expected)


def test_lines_grow_with_megabytes() -> None:
    assert Line(0.001, 0.006).at(2_000_000) == pytest.approx(0.013)


def test_the_first_limit_is_the_part_that_is_busiest() -> None:
    load = load_of(LARGE)
    for host, part in (
        (HostCapacity(threads=2, link=1e10), "processors"),
        (HostCapacity(threads=16, link=1e10), "event loop"),
        (HostCapacity(threads=64, link=1e8), "link between servers"),
        (HostCapacity(threads=64, network=1e9, link=1e12), "network"),
    ):
        limit = capacity(load, host, ANOTHER_MACHINE, 100)
        assert limit.first.part == part
        assert limit.clients_per_hour == pytest.approx(3600 / limit.first.seconds)
        assert limit.collecting == pytest.approx(100 * limit.first.seconds)
        assert all(stage.seconds <= limit.first.seconds for stage in limit.stages)


def test_with_small_submissions_and_many_threads_the_event_loop_is_last() -> None:
    small = load_of(Task(name="small", blocks=(Sparse("items", rows=2**10, select=8),), ring=Ring(64)))
    host = HostCapacity(threads=256, network=1e12, link=1e12)
    assert capacity(small, host, ANOTHER_MACHINE, 100).first.part == "event loop"


def test_processors_are_shared_by_all_that_computes() -> None:
    load = load_of(LARGE)
    *parts, processors = stages(load, HostCapacity(threads=4), ANOTHER_MACHINE)
    assert processors.work == pytest.approx(sum(stage.work for stage in parts if stage.computes))
    both = stages(load, HostCapacity(threads=4, servers=2, clients=0.004), ANOTHER_MACHINE)[-1]
    assert both.work == pytest.approx(2 * processors.work + 0.004)


def test_a_retrieval_takes_its_share_of_every_part_only_where_it_is_answered() -> None:
    load = load_of(LARGE)
    lines = Retrieval(loop=Line(0.1, 1.0), writer=Line(0.2, 0.0))
    constants = replace(ANOTHER_MACHINE, retrieval=lines)
    more = {"event loop": 0.1 + load.size / 1e6, "writer": 0.2}
    plain = {stage.part: stage.work for stage in stages(load, HostCapacity(), constants)}
    asked = {stage.part: stage.work for stage in stages(load, HostCapacity(answers=0.5), constants)}
    assert plain == {stage.part: stage.work for stage in stages(load, HostCapacity(), ANOTHER_MACHINE)}
    assert asked["answers"] == 0.5
    assert asked["processors"] == pytest.approx(plain["processors"] + 0.5 + sum(more.values()))
    for part, work in plain.items():
        if part != "processors":
            assert asked[part] == pytest.approx(work + more.get(part, 0.0))


def test_a_bigger_host_shortens_the_fold_and_a_slower_link_the_ending_not() -> None:
    load = load_of(LARGE)
    hosts = (HostCapacity(2), HostCapacity(32), HostCapacity(32, link=1e7))
    few, many, slow = (capacity(load, host, ANOTHER_MACHINE, 10).ending for host in hosts)
    assert many < few < slow


def test_memory_grows_with_clients() -> None:
    assert memory_bytes(10**9, ANOTHER_MACHINE, 0) == 10**9
    assert memory_bytes(10**9, ANOTHER_MACHINE, 10**6) == pytest.approx(10**9 + 10**6 * ANOTHER_MACHINE.waiting)
    load = load_of(LARGE)
    assert stored_bytes(load, ANOTHER_MACHINE, 100) > 100 * load.part


@pytest.mark.parametrize("changes", [{"threads": 0}, {"network": 0}, {"link": -1.0}])
def test_hosts_out_of_range_are_refused(changes: dict) -> None:
    with pytest.raises(MisuseError, match=next(iter(changes))):
        HostCapacity(**changes)


def test_a_round_without_clients_and_a_task_without_sums_are_refused() -> None:
    with pytest.raises(MisuseError, match="at least 1"):
        capacity(load_of(LARGE), HostCapacity(), ANOTHER_MACHINE, 0)
    alone = Task(name="alone", blocks=(Sparse("items", rows=100, select=2),), protocol="psr")
    with pytest.raises(MisuseError, match="submit nothing"):
        load_of(alone)


def test_unions_alone_have_a_load_of_their_own() -> None:
    unions = Task(name="unions", blocks=(Sparse("items", rows=1000, select=5),), protocol="psu", bound=None)
    assert load_of(unions).leaves > 0


def test_constants_say_which_machine_they_are_of() -> None:
    assert "another machine" in ANOTHER_MACHINE.machine
    assert replace(ANOTHER_MACHINE, machine="this one") != ANOTHER_MACHINE


def test_the_page_s_table_is_of_these_constants() -> None:
    page, known = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8"), ANOTHER_MACHINE
    lines = {
        "event loop": known.loop,
        "files: hashing, and writing blobs": known.bulk,
        "writer: the store": known.writer,
    }
    for part, line in lines.items():
        assert f"| {part} | {1e3 * line.client:.2g} ms + {1e3 * line.megabyte:.2g} ms · P |" in page
    walked = f"({1e9 * known.leaf:.2g} + {1e9 * known.plane:.2g} · planes) ns + {1e9 * known.proof:.2g} ns · 16 · B"
    assert f"| evaluation | {1e3 * known.submission:.2g} ms + leaves · {walked} |" in page
    assert f"({1e9 * known.fold:.2g} ns for each byte of cells" in page
    assert f"({1e9 * known.conclusion:.2g} ns for each byte of a share" in page


# ---- workers


def on_workers(count: int = 4, threads: int = 16, **more: float) -> HostCapacity:
    return HostCapacity(16, link=1e10, workers=Workers(count, threads, **more))


def by_part(host: HostCapacity) -> dict[str, Stage]:
    return {stage.part: stage for stage in stages(load_of(LARGE), host, ANOTHER_MACHINE)}


def test_evaluation_leaves_the_server_s_processors_for_those_of_workers() -> None:
    alone, helped = by_part(HostCapacity(16, link=1e10)), by_part(on_workers())
    assert helped["evaluation"].lanes == 64
    assert not helped["evaluation"].computes
    reading = ANOTHER_MACHINE.proof * load_of(LARGE).size
    assert helped["evaluation"].work == pytest.approx(alone["evaluation"].work + reading)
    merging = helped["partial sums"].work
    assert helped["processors"].work == pytest.approx(alone["processors"].work - alone["evaluation"].work + merging)


def test_a_worker_reads_every_submission_and_sends_all_cells_for_as_many_clients_as_it_seals() -> None:
    load, parts = load_of(LARGE), by_part(on_workers(network=1e9))
    assert SEALED == MOST_SEALED
    assert parts["network of the workers"].work == pytest.approx(8 * (load.size + load.cells / 256) / 1e9)
    assert parts["partial sums"].work == pytest.approx(load.cells / 256 * 8e-9), "a network that is slower than adding"
    assert by_part(on_workers(network=1e12))["partial sums"].work == pytest.approx(load.cells / 256 * 2e-9)


def test_workers_move_the_limit_until_the_server_is_it_again() -> None:
    load = load_of(LARGE)
    few, many = (capacity(load, on_workers(count, 1), ANOTHER_MACHINE, 100) for count in (1, 64))
    assert (few.first.part, many.first.part) == ("evaluation", "event loop")
    assert few.clients_per_hour == pytest.approx(worker_hourly(load, Workers(1, 1), ANOTHER_MACHINE))
    wide = Task(name="wide", blocks=(Sparse("items", rows=2**27, select=1_000),), ring=Ring(64))
    limit = capacity(load_of(wide), on_workers(1000), ANOTHER_MACHINE, 100)
    assert limit.first.part == "partial sums"


def test_a_round_ends_after_each_worker_has_sent_the_rest() -> None:
    load = load_of(LARGE)
    one, four = (capacity(load, on_workers(count), ANOTHER_MACHINE, 100).ending for count in (1, 4))
    assert four - one == pytest.approx(3 * load.cells * ANOTHER_MACHINE.partial)
    assert capacity(load, on_workers(100), ANOTHER_MACHINE, 4).ending == pytest.approx(four), "4 clients need no more"


@pytest.mark.parametrize(
    ("words", "expected"),
    [((0, 1), "workers"), ((10_001, 1), "workers"), ((1, 0), "threads"), ((1, 1, 0.0), "network")],
)
def test_workers_that_cannot_be_are_refused(words: tuple, expected: str) -> None:
    with pytest.raises(MisuseError, match=expected):
        Workers(*words)
