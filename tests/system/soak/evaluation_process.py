"""What evaluation costs by itself: `python -m tests.system.soak.evaluation_process SERVER ROWS SELECT BITS CLIENTS`.

The same work that a server does with submissions that are in, on the same threads, and nothing else: no network, no
store, no protocol. It waits for SIGUSR1 once it is ready, so that two of these can share the cores as two servers do.
"""

import signal
import sys
import time
from functools import partial

import trio

from fsl_async.server.aggregation import Aggregate, Submission
from parties.commands.bench.workload import Case, aggregate, client_of
from parties.compute import ThreadLane

from .site import say

DISTINCT = 8
"""So many different submissions take turns: more than caches hold, less than memory does."""


async def evaluate(server: int, rows: int, select: int, bits: int, clients: int) -> None:
    """Add so many submissions to a sum, and tell how long it took; then how long the sum took to fold."""
    case = Case(rows=rows, select=select, bits=bits)
    submissions = [client_of(case, number).submissions()[server] for number in range(min(DISTINCT, clients))]
    state, lane = aggregate(case, server), ThreadLane()
    await _add(state, submissions[0], lane)  # kernels are compiled, memory has been touched
    with trio.open_signal_receiver(signal.SIGUSR1) as signals:
        say(ready=1)
        await anext(signals)
    started, spent = time.perf_counter(), time.process_time()
    for number in range(clients):
        await _add(state, submissions[number % len(submissions)], lane)
    evaluated, processor = time.perf_counter(), time.process_time()
    await lane.run(state.share)
    say(evaluated=evaluated - started, folded=time.perf_counter() - evaluated, processor=processor - spent)


async def _add(state: Aggregate, submission: Submission, lane: ThreadLane) -> None:
    jobs, finish = await lane.run(partial(state.jobs, submission, lane.threads))
    await lane.run_all(jobs)
    await lane.run(finish)


if __name__ == "__main__":
    trio.run(evaluate, *map(int, sys.argv[1:]))
