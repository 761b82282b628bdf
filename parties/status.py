"""What a server says of itself when it is asked: where it is now, and how its past rounds ended.

Rules: these are values for the operator's side, which its port sends as they are. They hold names, numbers and public
reports; never a row, a seed or a share. Digests are fingerprints, "never" is None, and foreign text is made printable
where it arrives. What a command reads of another process is held to the constraints on the fields.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from fsl_async.protocols.ending import Activity
from parties.outcome import RoundReport

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Moment: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=2**36)]
"""Seconds since 1970, up to the year 4147, which the libraries can convert to a date in any time zone."""

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=2**36)]

Stage: TypeAlias = Literal["preparing", "drawing", "running", "resting", "away"]
"""Where a server is: both servers prepare the next round, they draw who takes part in it, a round runs, no further one
will open, or the task has no server in this process at present."""

TaskState: TypeAlias = Literal["starting", "running", "draining", "drained", "over", "failed"]
"""Where a task of a server's process is.

`starting`: its files are read and its store is opened. `running`: clients are served. `draining`: the operator has
ended it, and its running round has some time left. `drained`: it has ended so, and can be started again. `over`: the
last round of its settings is over. `failed`: an error has ended it; it can be started again.
"""


LETTERS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def fingerprint(digest: bytes) -> str:
    """The fingerprint of a digest of at least ten bytes, for the telephone; empty if there is no digest.

    It is the first 80 bits, in groups of four characters without those that sound or look alike (Crockford's base 32:
    no I, L, O, U); both servers write the same one.

    Example:
        >>> fingerprint(bytes(range(32)))
        '000G 40R4 0M30 E209'
    """
    number = int.from_bytes(digest[:10], "big")
    spelled = "".join(LETTERS[number >> shift & 31] for shift in range(75, -1, -5)) if digest else ""
    return " ".join(spelled[start : start + 4] for start in range(0, len(spelled), 4))


class Fingerprints(msgspec.Struct, frozen=True, kw_only=True):
    """What both operators can compare, because it is the same on both servers.

    Attributes:
        task: the task's.
        model: that of the model as it stands, which both servers compare before every round; empty if it has not been
            read yet.
        keys: those of S0's and S1's keys for statements.
    """

    task: str
    model: str
    keys: tuple[str, str]

    @staticmethod
    def of(task: bytes, model: bytes, keys: tuple[bytes, bytes]) -> Fingerprints:
        """Those of these digests and keys."""
        return Fingerprints(
            task=fingerprint(task), model=fingerprint(model), keys=(fingerprint(keys[0]), fingerprint(keys[1]))
        )


class HostedTaskStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task of a server's process is.

    Attributes:
        state: see `TaskState`.
        digest: the task's digest, in hexadecimal digits.
        store: the path of its store, or "memory".
        explanation: why it has failed, or what it waits for; empty where there is nothing to say.
    """

    state: TaskState
    digest: str
    store: str
    explanation: str = ""


class RoundTimes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A round's time in seconds, by what this server did; it did one thing at a time.

    A clock that was put back adds nothing.

    Attributes:
        collecting: clients could submit or retrieve, at the end perhaps only those that the other server waits for.
        computing: this server computed, and waited for nobody.
        waiting: this server waited for the other one.
        interrupted: once collecting was over: from the last recorded step to a restart (what of it the server ran for
            is not known), and while this server's own store or blobs held it up.
    """

    collecting: Seconds = 0.0
    computing: Seconds = 0.0
    waiting: Seconds = 0.0
    interrupted: Seconds = 0.0


class PastRound(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A settled round.

    Attributes:
        report: the public report of its outcome.
        protocol: ssa or psu.
        opened_at: when it opened, in seconds since 1970.
        settled_at: when it was settled, in seconds since 1970.
        times: its time by what this server did.
        evaluating: seconds that the evaluation of all its submissions took together, since the last restart if there
            was one; most of it happens while further clients are awaited.
        concluded: the digest of the outcome at which this server had arrived, as it told the other one; the report's,
            unless the task's own rule gave the other server another outcome. Empty where the round was aborted.
    """

    report: RoundReport
    protocol: str
    opened_at: float
    settled_at: float
    times: RoundTimes
    evaluating: float
    concluded: bytes = b""

    @property
    def seconds(self) -> float:
        """Seconds from opening to settling; 0 if the clock was set back in between, because then nobody knows."""
        return max(0.0, self.settled_at - self.opened_at)

    def summary(self) -> RoundSummary:
        """The round in brief."""
        report = self.report
        return RoundSummary(
            number=report.number,
            protocol=self.protocol,
            ended=report.ended,
            explanation=report.explanation,
            counted=len(report.clients),
            not_counted=dict(sorted(Counter(report.excluded.values()).items())),
            opened_at=self.opened_at,
            settled_at=self.settled_at,
            seconds=self.seconds,
            times=self.times,
            evaluating=self.evaluating,
        )


class RoundSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A settled round in brief, without names; see `PastRound`.

    Attributes:
        ended: how it ended.
        explanation: why it was aborted, or its sum refused; empty where it is done.
        counted: how many clients were counted.
        not_counted: how many were not, by the reason.
        seconds: from opening to settling.
    """

    number: Count
    protocol: str
    ended: Literal["done", "aborted", "refused"]
    explanation: str
    counted: Count
    not_counted: dict[str, Count]
    opened_at: Moment
    settled_at: Moment
    seconds: Seconds
    times: RoundTimes
    evaluating: Seconds


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a part of a server tells its operator, who is shown it as it stands.

    Attributes:
        title: what it is about, in a few words.
        text: what is to be seen at once.
        more: what is to be seen on demand.
        poor: whether something is to be done about it.
        figures: its numbers, by the names of their metrics without the `fsl_` before them.
    """

    title: str
    text: str
    more: str
    poor: bool
    figures: dict[str, float]


class RoundStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A running round.

    Attributes:
        number: its number.
        round_id: the identifier that every message of the round carries, in hexadecimal digits.
        fingerprint: its fingerprint.
        protocol: ssa or psu.
        state: the state of its machine (see docs/machines.md).
        opened_at: when it opened, in seconds since 1970.
        activity: what the server does with it now.
        since: since when it collects or, once that is over, since when it does not, in seconds since 1970.
        times: its time so far, by what this server did.
        evaluating: seconds that the evaluation of submissions took so far.
        closes_at: when it closes, in seconds since 1970; None: when enough clients have submitted.
        submissions: how many submissions are on its list.
        evaluated: how many of them have been added to the sum.
        retrievals: how many retrievals have been answered, repeats included, since the server was started.
        minimum: how many clients the round needs.
        maximum: with how many clients the round closes at once.
        waiting_for: whom or what it waits for, as text; empty if it waits for nobody.
    """

    number: Count
    round_id: str
    fingerprint: str
    protocol: str
    state: str
    opened_at: Moment
    activity: Activity
    since: Moment
    times: RoundTimes
    evaluating: Seconds
    closes_at: Moment | None
    submissions: Count
    evaluated: Count
    retrievals: Count
    minimum: Count
    maximum: Count
    waiting_for: str

    @property
    def step(self) -> Literal["collect", "compute"]:
        """Its step, of the two that a round has before it is done."""
        return "collect" if self.activity == "collecting" else "compute"


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that computes for a server.

    Attributes:
        name: its name, another one in each life.
        host: where it runs.
        adding: clients whose submissions it has been given and has not added yet.
        held: clients in its partial sum that is not sealed yet.
    """

    name: str
    host: str
    adding: Count = 0
    held: Count = 0


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How what computes a server's rounds stands, where that is not the server's own process.

    Attributes:
        engine: what it is: "dask".
        where: the address of its scheduler.
        connected: whether the server is connected with it.
        workers: those that are there.
        waiting: clients whose submissions no worker has been given yet, or not again.
        open: partial sums that are not sealed.
        sealed: partial sums of the running round that this server has.
        given_again: clients whose submissions were given out again in the running round, because a worker was lost.
        bytes_taken: of partial sums and answers that workers have sent since the server was started.
    """

    engine: str
    where: str
    connected: bool
    workers: tuple[WorkerStatus, ...] = ()
    waiting: Count = 0
    open: Count = 0
    sealed: Count = 0
    given_again: Count = 0
    bytes_taken: Count = 0


class BlobsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server has its bulk, and how much of it.

    Attributes:
        where: a folder, the address of an object store, or "memory".
        stored_bytes: bytes of all blobs, as far as this process knows.
        free_bytes: bytes that are free there; None where that is not known.
        to_erase: how many groups of blobs, such as a round's, wait to be erased.
    """

    where: str
    stored_bytes: Count
    free_bytes: Count | None = None
    to_erase: Count = 0


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a server.

    Attributes:
        server: S0 or S1.
        task: the task's name.
        fingerprints: of the task, the model and both servers' keys.
        peer_connected: whether the other server is connected.
        peer_release: the release of this software that the other server says it runs; empty if it has not said so.
        peer_away_since: since when the other server is not connected, in seconds since 1970; None while it is, and
            before the two have met.
        peer_stops_since: when the other server said that it stops as its operator wants, in seconds since 1970; None
            once it is met again.
        held_up: what of this server's own keeps its rounds from going on, for people; empty where nothing does.
        held_up_since: since when, in seconds since 1970; None where nothing does.
        clients_connected: how many connections of clients there are.
        clients_known: how many clients may take part.
        stage: where the server is.
        asked: how many clients wait to take part in the round that is prepared, or in the one after the present.
        number: of the round that runs, is prepared, or was the last.
        last: the last settled round; None before the first.
        round: the running round; None while the two servers toss the seed of the next one.
        waiting_for: whom or what the server waits for, as text.
        rounds_done: how many rounds have been done since the server's first start.
        rounds_aborted: how many were aborted since then, including those whose sum was refused.
        notes: what else parts of the server tell.
        blobs: where its bulk is; None where that is not known.
        engine: what computes its rounds; None where its own process does.
    """

    server: str
    task: str
    fingerprints: Fingerprints
    peer_connected: bool
    peer_release: str
    clients_connected: Count
    clients_known: Count
    stage: Stage
    asked: Count
    number: Count
    last: RoundSummary | None
    round: RoundStatus | None
    waiting_for: str
    rounds_done: Count
    rounds_aborted: Count
    notes: tuple[Note, ...]
    blobs: BlobsStatus | None
    engine: EngineStatus | None
    peer_away_since: Moment | None
    peer_stops_since: float | None
    held_up: str
    held_up_since: Moment | None

    @property
    def peer(self) -> str:
        """The other server's name."""
        return "S1" if self.server == "S0" else "S0"

    @staticmethod
    def away(server: str, task: str, fingerprints: Fingerprints) -> ServerStatus:
        """That of a server which has not begun: nobody is connected, and no round was ever opened."""
        return ServerStatus(
            server=server,
            task=task,
            fingerprints=fingerprints,
            peer_connected=False,
            peer_release="",
            peer_away_since=None,
            peer_stops_since=None,
            held_up="",
            held_up_since=None,
            clients_connected=0,
            clients_known=0,
            stage="away",
            asked=0,
            number=0,
            last=None,
            round=None,
            waiting_for="",
            rounds_done=0,
            rounds_aborted=0,
            notes=(),
            blobs=None,
            engine=None,
        )
