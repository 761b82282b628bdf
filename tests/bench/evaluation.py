"""`bench kernels`: what a server does with one client's trees, compared with AES and with memory.

A leaf is counted as one AES block for the walk, one for each plane of its payload, and one for a proof; what is really
spent, a little less, stands beside it. Wide rows are bound by the accumulator's way through memory instead: every byte
of it is read and written once for each client. A server adds what has arrived meanwhile at once, tile by tile, so that
cells stay in the cache: that is measured beside one client's trees alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from examples.paper.efficiency.printed import evaluation_time
from parties.commands.bench.machine import cores, run_all
from parties.commands.bench.workload import Case, aggregate, client_of
from tests.bench.alone import server_alone
from tests.bench.ceiling import ceiling
from tests.bench.measures import Bound, Spread, aes_bound, alternate, update_bound
from tests.bench.results import Result, Target
from tests.bench.workload import Options, aes_per_leaf, aes_spent_per_leaf, clients_of

REPETITIONS = 9

ONE_TENTH = 104_858
ONE_HUNDREDTH = 10_486
ONE_THOUSANDTH = 1_049
WIDTH_OF_MEMORY_BOUND = 8
AT_ONCE = 8
"""Submissions of a batch."""

SET = (
    Case(select=ONE_TENTH),
    Case(select=ONE_HUNDREDTH),
    Case(select=ONE_THOUSANDTH),
    Case(select=ONE_TENTH, bits=64),
    Case(select=ONE_TENTH, bits=32),
    Case(select=ONE_HUNDREDTH, width=64, bits=32),
)
PAPER_BITS = 128
"""Of the ring in the paper's table of computation, for rows of one weight; on 64 cores, no proofs."""

VERIFIED_TARGET = 1.8
LEAST_PARTS = {ONE_TENTH / 2**20: 0.75, ONE_HUNDREDTH / 2**20: 0.84}
"""Of what walking and converting alone reaches."""
THREADS_TARGET = 1.7
MODEL_COPIES_TARGET = 4
MEMORY_TARGET = 128 * 2**20


def kernels_suite(options: Options) -> Iterator[Result]:
    """The evaluation of a set of cases, or of the one that is asked for; then threads and memory."""
    if options.given:
        case = options.apply(SET[0])
        yield from both_securities(case)
        yield from threads_compared(case)
        yield peak_memory(case)
        return
    for case in SET:
        yield from both_securities(options.apply(case))
    yield from threads_compared(SET[0])
    yield peak_memory(SET[0])
    yield peak_memory(SET[1])


def both_securities(case: Case) -> Iterator[Result]:
    """A case without and with proofs, measured in turns, and the two compared."""
    plain, verified = replace(case, security="semi-honest"), replace(case, security="verified")
    bound = aes_bound(case.threads)
    cases = (plain, verified)
    beside = [*map(ceiling, cases), *map(evaluate_at_once, cases)] if case.forest.planes == 1 else []
    blocks, (plain_seconds, verified_seconds, *others) = alternate(REPETITIONS, bound, *map(evaluate, cases), *beside)
    yield _against_aes(plain, plain_seconds, blocks, bound)
    yield _against_aes(verified, verified_seconds, blocks, bound)
    for each, least, seconds in zip(cases, others[:2], others[2:], strict=False):
        yield _against_ceiling(each, seconds.times(1 / AT_ONCE), least)
    if plain.leaves == verified.leaves:  # not where leaves of several positions make the plain walk shorter
        yield _price_of_proofs(verified, verified_seconds, plain_seconds)
    if case.width >= WIDTH_OF_MEMORY_BOUND:
        yield _against_memory(plain)


def evaluate(case: Case) -> Callable[[], None]:
    """One client's trees added to the sum: the kernels alone, prepared."""
    submission = client_of(case, 0).submissions()[0]
    jobs, _ = aggregate(case, 0).jobs(submission, case.threads)
    return lambda: run_all(jobs, case.threads)


def evaluate_at_once(case: Case) -> Callable[[], None]:
    """The trees of `AT_ONCE` clients added to the sum as a batch; prepared."""
    clients = clients_of(replace(case, clients=AT_ONCE))
    batch = aggregate(case, 0).batch([client.submissions()[0] for client in clients], case.threads)
    run_all(batch.preparing(), case.threads)
    jobs = batch.adding()
    return lambda: run_all(jobs, case.threads)


def _against_aes(case: Case, seconds: Spread, blocks: Spread, bound: Bound) -> Result:
    per_leaf = aes_per_leaf(case)
    work = {"aes_blocks_per_leaf": per_leaf, "aes_blocks_spent_per_leaf": aes_spent_per_leaf(case)}
    measured = case.width == 1 and case.bits == PAPER_BITS
    paper = evaluation_time(case.rows, case.select) if measured else None
    return Result(
        name=f"evaluate {case.title}, {case.security}",
        parameters=case.parameters() | work | {"aes_blocks_per_second": blocks.median},
        seconds=seconds,
        rate=case.leaves / seconds.median,
        unit="leaves/s",
        bound=blocks.times(1 / per_leaf),
        against=f"{bound.name}, {per_leaf} blocks to a leaf",
        paper=paper,
    )


def _against_ceiling(case: Case, seconds: Spread, least: Spread) -> Result:
    part = least.median / seconds.median
    wanted = LEAST_PARTS.get(case.select / case.rows) if case.bits == PAPER_BITS else None
    return Result(
        name=f"{AT_ONCE} at once, each, {case.title}, {case.security}",
        parameters=case.parameters() | {"part_of_the_ceiling": part},
        seconds=seconds,
        rate=case.leaves / seconds.median,
        unit="leaves/s",
        bound=Spread.of([case.leaves / seconds for seconds in least]),
        against="trees walked and leaves converted, nothing added",
        targets=() if wanted is None else (Target(part, "at least", wanted, "of this rate reached"),),
    )


def _against_memory(case: Case) -> Result:
    bound = update_bound(case.threads)
    speed, (seconds,) = alternate(REPETITIONS, bound, evaluate(case))
    moved = 2 * case.leaves * case.forest.planes * 16
    return Result(
        name=f"evaluate {case.title}, accumulator read and written",
        parameters=case.parameters() | {"bytes": moved},
        seconds=seconds,
        rate=moved / seconds.median,
        unit="bytes/s",
        bound=speed,
        against=bound.name,
    )


def _price_of_proofs(case: Case, seconds: Spread, plain: Spread) -> Result:
    times = seconds.median / plain.median
    return Result(
        name=f"verified / semi-honest, {case.title}",
        parameters=case.parameters() | {"seconds_semi_honest": plain.median},
        seconds=seconds,
        rate=times,
        unit="× the time",
        targets=(Target(times, "at most", VERIFIED_TARGET, "× the time"),),
    )


def threads_compared(case: Case) -> Iterator[Result]:
    """One thread and two, in turns, with what a second thread gains in AES; nothing on a machine with one core.

    Virtual cores may share one: then nothing can gain, and the bound shows it.
    """
    if cores() < 2:
        return
    one, two = replace(case, threads=1), replace(case, threads=2)
    gains = Bound("what a second thread gains in AES", partial(_gain, aes_bound(1), aes_bound(2)))
    gain, (first, second) = alternate(REPETITIONS, gains, evaluate(one), evaluate(two))
    yield Result(
        name=f"2 threads / 1, {case.title}",
        parameters=two.parameters() | {"seconds_of_one": first.median},
        seconds=second,
        rate=first.median / second.median,
        unit="× the speed",
        bound=gain,
        against=gains.name,
        targets=(Target(first.median / second.median, "at least", THREADS_TARGET, "× the speed"),),
    )


def _gain(one: Bound, two: Bound) -> float:
    single = one.measure()
    return two.measure() / single


def peak_memory(case: Case) -> Result:
    """The most memory that a server process ever holds that evaluates clients one after the other."""
    clients = clients_of(replace(case, clients=3))
    account = server_alone(case, clients, fold=False)
    limit = MODEL_COPIES_TARGET * case.rows * case.width * case.bits // 8 + MEMORY_TARGET
    return Result(
        name=f"peak memory {case.title}, {case.security}",
        parameters=case.parameters() | account.parameters() | {"clients": len(clients)},
        seconds=Spread.of(account.evaluation),
        rate=account.peak,
        unit="bytes",
        bound=Spread.of([limit]),
        against="four models and 128 MiB",
        targets=(Target(account.peak / 2**20, "at most", limit / 2**20, "MiB"),),
    )
