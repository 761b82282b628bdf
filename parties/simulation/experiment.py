"""An experiment: rounds of a task over simulated clients, with a history that is written while they run.

    def train(rows, turn):
        ...
        return {"items": (ids, change)}, {"loss": loss}

    clients = {"ada": ({"items": ids}, train), ...}
    history = run_experiment(task, model, clients, rounds=15, select=20, evaluate=rmse, history="run.jsonl")
    same = run_experiment(task, model, clients, rounds=15, select=20, evaluate=rmse, clear=True)
    history.plot("rmse", clear=same)

Rules: who is selected, who is late, and every client's randomness are functions of the seed, the round and the client;
the order of messages does not depend on how long anybody trains. So the same run gives the same records but for
seconds, with threads, processes or neither, at one go or resumed. All of it comes from a seed: for simulations alone.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt

from fsl_async.digests import Domain, digest
from fsl_async.errors import FslError, MisuseError
from fsl_async.server.rules import describe_state
from fsl_async.task import Task
from parties.client.arguments import wanted_rows
from parties.outcome import Model, Retrieved
from parties.server.stored_arrays import keyed, under
from parties.simulation.history import SECONDS, History, HistoryFile, Record, figures
from parties.simulation.ways import Clear, Ended, Secure, Standing, at_a_time


@dataclass
class Turn:
    """A client's part in one round.

    Attributes:
        number: the round's, from 1.
        seed: of this client in this round: `torch.manual_seed(turn.seed)`, say.
        state: arrays that stay with this client from round to round; what training leaves here is there again.
    """

    number: int
    seed: int = field(repr=False)
    state: Model = field(default_factory=dict)

    @property
    def rng(self) -> np.random.Generator:
        """Randomness for this turn; the same at every call."""
        return np.random.default_rng(self.seed)


Wanted: TypeAlias = Mapping[str, Any]
"""By block, the rows to retrieve, or `...` for all of it."""

Train: TypeAlias = Callable[[Retrieved, Turn], Any]
"""Takes what was retrieved, and returns an update as `Client.submit` takes it, or a pair of that and its metrics."""

Client: TypeAlias = tuple[Wanted | Callable[[Turn], Wanted], Train]
"""What a client retrieves, or a function of its turn that says it; and how it trains."""


def run_experiment(
    task: Task,
    model: Mapping[str, npt.ArrayLike],
    clients: Mapping[str, Client],
    rounds: int,
    *,
    seed: int = 1,
    select: int | Callable[[int], Sequence[str]] | None = None,
    clear: bool = False,
    evaluate: Callable[[Model], Mapping[str, float]] | None = None,
    held_out: Mapping[str, Client] | None = None,
    every: int = 1,
    on_round: Callable[[Record], Any] | None = None,
    late: float = 0.0,
    concurrency: int = 1,
    processes: bool = False,
    history: str | Path | None = None,
) -> History:
    """Run rounds of a task, with all parties in this process, and return their history.

    A record has the number of the `round`; how many clients were `selected`, and `counted`, and who `failed` and why
    (its function raised, or its update was refused: the round goes on without it); `aborted`, why nothing was summed,
    if so; `late`, how many of the counted updates are of the round before; `bytes_up` and `bytes_down` of all clients;
    `epsilon`, what the rounds have spent so far; `model`, a digest; the means of the counted clients' metrics
    (`clients.loss`), of the held-out ones' (`held_out.loss`), and what `evaluate` returns, by its own names; and
    seconds by part, and `seconds.processor` of this process. JSON has no NaN: it is null.

    Args:
        task: what is learnt.
        model: by block, what both servers start from.
        clients: by name; see `Client`.
        rounds: how many.
        seed: decides who is selected, all randomness and all order.
        select: how many clients take part in a round, drawn by the seed, or a function from the round's number to their
            names; None: all.
        clear: run the same without any protocol, as plain federated averaging: the same clients, selections and seeds.
        evaluate: from the model after a round to its figures, as on a server.
        held_out: clients whose metrics are taken of the model after a round, and whose updates go nowhere.
        every: after how many rounds these two are done.
        on_round: is told of each record, those that are read back included; what is true ends the run.
        late: the share of clients that train too long: their updates are in the next round's sum. Needs a task with
            `updates="any"`.
        concurrency: how many clients train at a time, in threads.
        processes: in processes instead; clients are then pickled.
        history: the file of the records. A run that was killed goes on from there when it is called again.

    Raises:
        MisuseError: arguments contradict each other, or the history is another run's.
        StorageError: the history could not be written.
    """
    _check(task, clients, rounds, select, late, concurrency)
    begins = Standing({name: np.array(array) for name, array in model.items()}, {})
    settings = [
        task.digest().hex(),
        seed,
        select if isinstance(select, int) else "",
        clear,
        late,
        every,
        *sorted(clients),
    ]
    name = digest(Domain.SIMULATION, repr(settings).encode(), describe_state(begins.model)).hex()[:16]
    experiment = _Experiment(task, clients, seed, select, clear, late, begins)
    file = None if history is None else HistoryFile(Path(history), name)
    records: list[Record] = []
    if file is not None:
        records, left = file.read()
        if records:
            experiment.restore(left)
    stopped = any(on_round(record) for record in records[:rounds]) if on_round else False
    pool = _pool(concurrency, processes)
    with pool as executor, _progress(rounds, len(records)) as tell:
        while len(records) < rounds and not stopped:
            start, number = time.process_time(), len(records) + 1
            record = {"run": name, **experiment.round(number, executor)}
            _spend(record, "processor", time.process_time() - start)
            if number % every == 0:
                with _timed(record, "evaluate"):
                    record |= experiment.evaluated(evaluate, held_out or {})
            record = record if file is None else file.append(record, experiment.left())
            records.append(record)
            tell(record)
            stopped = bool(on_round and on_round(record))
    return History(records, experiment.standing.model)


class _Experiment:
    """What a run holds from one round to the next.

    Attributes:
        standing: what the servers hold.
    """

    def __init__(
        self,
        task: Task,
        clients: Mapping[str, Client],
        seed: int,
        select: int | Callable[[int], Sequence[str]] | None,
        clear: bool,
        late: float,
        begins: Standing,
    ) -> None:
        self.standing = begins
        self._task, self._clients, self._seed, self._select = task, clients, seed, select
        self._clear, self._late_share = clear, late
        self._states: dict[str, Model] = {}
        self._late: dict[str, Any] = {}

    def round(self, number: int, executor: Executor | None) -> Record:
        """One round: late updates first, then those that are trained in it."""
        waiting, self._late = self._late, {}
        names = [name for name in self._selected(number, waiting) if name not in waiting]
        record: Record = {"round": number, "selected": len(names)}
        with closing(self._way(number)) as way:
            part = _Round(self._task, way, executor, record)
            turns = {name: self._turn(number, name) for name in names}
            if self._task.alignment == "union" and not part.unite(
                {name: (self._clients[name][0], turn) for name, turn in turns.items()}, waiting
            ):
                names, waiting = [], {}
            part.submit(waiting, {})
            training: dict[str, Future[_Trained]] = {}
            for some in at_a_time(self._task, names):
                begun = part.start({name: (self._clients[name], turns[name]) for name in some})
                self._take(part, turns, training)
                training = begun
            self._take(part, turns, training)
            with _timed(record, "aggregate"):
                ended = way.finish()
        self.standing = ended.standing
        return {
            **record,
            **part.figures(ended),
            "late": len(set(waiting) & set(ended.counted)),
            "epsilon": self._task.privacy.epsilon(number) if self._task.privacy and not self._clear else None,
            "model": describe_state(self.standing.model).hex()[:32],
        }

    def evaluated(
        self, evaluate: Callable[[Model], Mapping[str, float]] | None, held_out: Mapping[str, Client]
    ) -> Record:
        """The figures of the model as it stands."""
        model = self.standing.model
        found = []
        for name, (wanted, function) in held_out.items():
            turn = Turn(0, self._draw(0, name))
            asked = {name: wanted(turn) if callable(wanted) else wanted}
            rows = Clear(self._task, 0, self.standing).retrieve(asked)[name]
            if isinstance(rows, Exception):
                raise rows
            found.append(_train(function, rows, turn).metrics)
        return _means("held_out.", found) | figures("", evaluate(model) if evaluate else {})

    def left(self) -> Model:
        """All of it, as arrays by name; see `restore`."""
        flat = keyed("model/", self.standing.model) | keyed("state/", self.standing.state)
        for name, state in self._states.items():
            flat |= keyed(f"client/{quote(name, safe='')}/", state)
        for name, update in self._late.items():
            for block, given in update.items():
                place = f"late/{quote(name, safe='')}/{block}"
                rows, values = given if isinstance(given, tuple) else (None, given)
                flat[f"{place}/values"] = np.asarray(values)
                if rows is not None:
                    flat[f"{place}/rows"] = np.asarray(rows)
        return flat

    def restore(self, left: Model) -> None:
        """Go on from what `left` returned."""
        self.standing = Standing(under("model/", left), under("state/", left))
        for key, array in under("client/", left).items():
            name, _, inner = key.partition("/")
            self._states.setdefault(unquote(name), {})[inner] = array
        for key, array in under("late/", left).items():
            name, _, inner = key.partition("/")
            block, _, what = inner.rpartition("/")
            if what == "values":
                rows = left.get(f"late/{name}/{block}/rows")
                self._late.setdefault(unquote(name), {})[block] = array if rows is None else (rows, array)

    def _turn(self, number: int, name: str) -> Turn:
        kept = {key: array.copy() for key, array in self._states.get(name, {}).items()}
        return Turn(number, self._draw(number, name), kept)

    def _take(self, part: _Round, turns: Mapping[str, Turn], training: Mapping[str, Future[_Trained]]) -> None:
        """What training has come to, in the order in which it began."""
        done = {name: trained for name, started in training.items() if (trained := part.trained(name, started))}
        self._states |= {name: trained.state for name, trained in done.items()}
        late = [name for name in done if self._draw(turns[name].number, f"late/{name}") < self._late_share * 2**63]
        self._late |= {name: done.pop(name).update for name in late}
        part.submit(
            {name: trained.update for name, trained in done.items()},
            {name: trained.metrics for name, trained in done.items()},
        )

    def _way(self, number: int) -> Secure | Clear:
        if self._clear:
            return Clear(self._task, number, self.standing)
        return Secure(self._task, number, self._draw(number, ""), self.standing)

    def _selected(self, number: int, late: Mapping[str, Any]) -> list[str]:
        """Of those that are not late from the round before."""
        if callable(self._select):
            chosen = list(self._select(number))
            for name in chosen:
                if name not in self._clients:
                    raise MisuseError(f"select: there is no client {name!r}, which was selected for round {number}")
            return chosen
        names = [name for name in self._clients if name not in late]
        if self._select is None:
            return names
        order = np.random.default_rng(self._draw(number, "select")).permutation(len(names))
        return [names[place] for place in sorted(order[: self._select])]

    def _draw(self, number: int, name: str) -> int:
        """A seed for one purpose."""
        text = f"{self._seed}/{number}/{name}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


@dataclass(frozen=True)
class _Trained:
    """What a client's function has come to."""

    update: Any
    metrics: Mapping[str, float]
    state: Model
    seconds: float


class _Round:
    """What is done in one round, and what went wrong."""

    def __init__(self, task: Task, way: Secure | Clear, executor: Executor | None, record: Record) -> None:
        self._task = task
        self._way, self._executor, self._record = way, executor, record
        self._failed: dict[str, str] = {}
        self._metrics: dict[str, Mapping[str, float]] = {}
        self._wanted: dict[str, Wanted] = {}
        self._no_union = ""

    def unite(
        self, clients: Mapping[str, tuple[Wanted | Callable[[Turn], Wanted], Turn]], waiting: Mapping[str, Any]
    ) -> bool:
        """Find the union of all rows that are to be retrieved; without one, those that wait have failed, too."""
        for name, (wanted, turn) in clients.items():
            try:
                self._wanted[name] = wanted(turn) if callable(wanted) else wanted
                wanted_rows(self._task, self._wanted[name])
            except Exception as error:
                self._wanted.pop(name, None)
                self._fail(name, error)
        try:
            with _timed(self._record, "unite"):
                self._way.unite(self._wanted)
        except FslError as error:
            self._no_union = str(error)
            self._failed |= dict.fromkeys(waiting, self._no_union)
        return not self._no_union

    def start(self, clients: Mapping[str, tuple[Client, Turn]]) -> dict[str, Future[_Trained]]:
        """Retrieve, all at the same time, and begin to train; without those that cannot."""
        wanted: dict[str, Wanted] = {}
        for name, ((asked, _), turn) in clients.items():
            if name not in self._failed:
                asked = self._wanted.get(name, asked)
                try:
                    wanted[name] = asked(turn) if callable(asked) else asked
                except Exception as error:
                    self._fail(name, error)
        with _timed(self._record, "retrieve"):
            found = self._way.retrieve({name: rows for name, rows in wanted.items() if rows})
        begun: dict[str, Future[_Trained]] = {}
        for name in wanted:
            rows = found.get(name, Retrieved())
            if isinstance(rows, Exception):
                self._fail(name, rows)
            else:
                (_, train), turn = clients[name]
                begun[name] = self._begin(train, rows, turn)
        return begun

    def _begin(self, train: Train, found: Retrieved, turn: Turn) -> Future[_Trained]:
        if self._executor is not None:
            return self._executor.submit(_train, train, found, turn)
        done: Future[_Trained] = Future()
        try:
            done.set_result(_train(train, found, turn))
        except Exception as error:
            done.set_exception(error)
        return done

    def trained(self, name: str, started: Future[_Trained]) -> _Trained | None:
        """What came of training; None where it failed."""
        try:
            trained = started.result()
        except Exception as error:
            self._fail(name, error)
            return None
        _spend(self._record, "train", trained.seconds)
        return trained

    def submit(self, updates: Mapping[str, Any], metrics: Mapping[str, Mapping[str, float]]) -> None:
        """Add updates to the sum, all at the same time; one that is refused is left out."""
        with _timed(self._record, "submit"):
            outcomes = self._way.submit(updates)
        for name, outcome in outcomes.items():
            if isinstance(outcome, FslError):
                self._fail(name, outcome)
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                self._metrics[name] = metrics.get(name, {})

    def figures(self, ended: Ended) -> Record:
        """What the record has of the round."""
        return {
            "counted": len(ended.counted),
            "failed": self._failed | dict(ended.excluded),
            "aborted": self._no_union or ended.aborted,
            "bytes_up": ended.bytes_up,
            "bytes_down": ended.bytes_down,
            **_means("clients.", [self._metrics[name] for name in ended.counted]),
        }

    def _fail(self, name: str, error: Exception) -> None:
        self._failed[name] = str(error) if isinstance(error, FslError) else f"{type(error).__name__}: {error}"


def _means(prefix: str, each: Sequence[Mapping[str, float]]) -> Record:
    """Of every metric, the mean over the clients that have it."""
    found: dict[str, list[float]] = defaultdict(list)
    for name, value in (one for metrics in each for one in metrics.items()):
        found[name].append(value)
    return figures(prefix, {name: fmean(values) for name, values in found.items()})


def _train(train: Train, found: Retrieved, turn: Turn) -> _Trained:
    """Call a client's function, and look at what it returns; in a thread or a process of its own."""
    start = time.perf_counter()
    made = train(found, turn)
    update, metrics = made if isinstance(made, tuple) and len(made) == 2 else (made, {})
    if not isinstance(update, Mapping):
        raise MisuseError(
            f"an update was expected, by block, or a pair of an update and its metrics; the client's function returned "
            f"{type(update).__name__}"
        )
    state = {str(key): np.array(value) for key, value in turn.state.items()}
    if lost := [key for key, array in state.items() if array.dtype.hasobject]:
        raise MisuseError(f"turn.state[{lost[0]!r}] is no array of numbers, so no run could be resumed with it")
    numbers = {name: float(value) for name, value in metrics.items()}
    return _Trained(update, numbers, state, time.perf_counter() - start)


def _check(
    task: Task,
    clients: Mapping[str, Client],
    rounds: int,
    select: int | Callable[[int], Sequence[str]] | None,
    late: float,
    concurrency: int,
) -> None:
    if task.protocol != "ssa" or task.draws:
        raise MisuseError(
            "an experiment has rounds of retrievals and submissions, and selects clients itself: "
            'protocol="ssa" expected, and no sample; say select= in place of it'
        )
    least = select if isinstance(select, int) else len(clients)
    if least > len(clients) or least < task.quorum or rounds < 1 or concurrency < 1:
        raise MisuseError(
            f"{task.quorum} to {len(clients)} clients in a round expected (the task needs {task.quorum}, and there are "
            f"{len(clients)}), at least 1 round, and at least 1 client at a time; got {least}, {rounds}, {concurrency}"
        )
    if not 0 <= late < 1 or (late and task.updates != "any"):
        raise MisuseError(
            "late: a share from 0 to less than 1 expected, and where it is not 0 a task with "
            f'updates="any", since a late update is of rows of the round before; got {late} and "{task.updates}"'
        )
    if task.privacy is not None and rounds > task.privacy.rounds:
        raise MisuseError(f"the task's privacy budget lasts for {task.privacy.rounds} rounds, not for {rounds}")


def _pool(concurrency: int, processes: bool) -> Any:
    """What trains; nothing where the caller's own thread does."""
    if processes:
        return ProcessPoolExecutor(concurrency, get_context("spawn"))  # a fork copies locks that threads hold
    return ThreadPoolExecutor(concurrency) if concurrency > 1 else nullcontext()


@contextmanager
def _progress(rounds: int, done: int) -> Iterator[Callable[[Record], None]]:
    """Rounds on a terminal, with the last one's figures; nothing elsewhere."""
    from rich.console import Console  # whoever imports `parties` alone needs none of it
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("rounds", total=rounds, completed=done)

        def tell(record: Record) -> None:
            shown = {name: value for name, value in record.items() if isinstance(value, float) and SECONDS not in name}
            text = " ".join(f"{name}={value:.4g}" for name, value in shown.items())
            progress.update(bar, advance=1, description=f"{record['counted']} counted {text}")

        yield tell


@contextmanager
def _timed(record: Record, part: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        _spend(record, part, time.perf_counter() - start)


def _spend(record: Record, part: str, seconds: float) -> None:
    record[f"{SECONDS}{part}"] = record.get(f"{SECONDS}{part}", 0.0) + seconds
