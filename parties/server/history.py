"""What a server restarts from: the model, how far it has got, and the rounds that are over.

    standing                 value: `Progress`: whose store this is, how far the server has got
    model/<block>            value: the model as it stands, raw
    state/<name>             value: what the task's optimizer or own rule keeps, raw
    update/<block>           value: the sum of the last round that was done, raw; only where the server keeps it
    union/<block>            value: the union that rounds are aligned on, raw
    past/<number>            value: a settled round's account
    past-number/<round id>   value: its number
    restores                 journal: when it was made from a copy (see `parties.deployment.backup`)

Rules: settling a round is one commit, so that the model, the account and the number never disagree; a store belongs to
one server and one task for good.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from fsl_async.config import ServerKeys
from fsl_async.differences import first_difference
from fsl_async.errors import PeerViolationError, StorageError
from fsl_async.protocols import psu
from fsl_async.task import Task
from parties.outcome import Done, Model
from parties.server.store_layout import PROGRESS, RESTORES, round_prefix
from parties.server.stored_arrays import ArrayForm, forms, keyed, puts, stored, under
from parties.status import PastRound
from parties.storage.store import Change, Erase, Put, Store, decode_stored


class SessionSeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The seed that lays out trees.

    Attributes:
        number: the round that was opened with it.
        hash_seed: the seed.
    """

    number: int
    hash_seed: bytes


class SumOf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose sum the store keeps.

    Attributes:
        number: the round's.
        clients: how many clients are in it.
    """

    number: int
    clients: int


class Progress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a server has got.

    Attributes:
        task: the canonical bytes of the task.
        server: 0 or 1.
        keys: the server's own public keys.
        settled: the number of the last settled round; 0 before the first.
        session: what lays out the trees of sessions; none before the first round.
        alignment: what the next round works on.
        done: how many rounds are done.
        aborted: how many were aborted, or their sum was refused: the model stayed as it was.
        forms: by key, dtype and shape of the arrays stored beside this.
        sum_of: whose sum is among them; None where there is none.
    """

    task: bytes
    server: int
    keys: ServerKeys
    settled: int = 0
    session: SessionSeed | None = None
    alignment: psu.Alignment
    done: int = 0
    aborted: int = 0
    forms: dict[str, ArrayForm] = {}
    sum_of: SumOf | None = None


class Restore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A restore, as the store has it.

    Attributes:
        settled: the last round that was over in the copy.
        newest: whether the mark said that nothing had been done since.
        gives_up: whether the round that had begun in the copy must be aborted.
        at: seconds since 1970.
    """

    settled: int
    newest: bool
    gives_up: bool
    at: float


@dataclass(frozen=True)
class Arrays:
    """What a server holds beside its progress, each by its name.

    Attributes:
        model: the model as it stands.
        state: what the task's optimizer or own rule keeps.
        union: by sparse block, the union that rounds are aligned on.
        update: the sum of the round that `Progress.sum_of` names.
    """

    model: Model
    state: Model = field(default_factory=dict)
    union: Model = field(default_factory=dict)
    update: Model = field(default_factory=dict)

    def keyed(self) -> Model:
        """All of them, as they are named in the store."""
        return (
            keyed("model/", self.model)
            | keyed("state/", self.state)
            | keyed("union/", self.union)
            | keyed("update/", self.update)
        )

    @staticmethod
    def of(stored: Model) -> Arrays:
        """What `keyed` gave."""
        return Arrays(*(under(f"{kind}/", stored) for kind in ("model", "state", "union", "update")))


class PastRounds:
    """The rounds of one server that are over, and what its store says of the one that comes next."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def last(self, settled: int, most: int) -> list[PastRound]:
        """The rounds that are over up to a number, in order, at most so many; no others are read."""
        return [await self.number(number) for number in range(max(1, settled - most + 1), settled + 1)]

    async def opened_at(self, number: int, now: float) -> float:
        """When a round opened, in seconds since 1970; now, if it opens now, or the clock was put back since."""
        key = f"{round_prefix(number)}/opened"
        if await self._store.keys(key):
            return min(float(decode_stored(await self._store.blob(key), float, key)), now)
        await self._store.commit(Put(key, msgspec.msgpack.encode(now)))
        return now

    async def gives_up(self, settled: int) -> bool:
        """Whether the round after the last settled one must be aborted: nobody knows what was said in it since."""
        return any(restore.gives_up and restore.settled == settled for restore in await self._restores())

    async def is_restored(self, settled: int) -> bool:
        """Whether it is unknown what was done after this round, because the store was made from a copy since."""
        return any(restore.settled == settled and not restore.newest for restore in await self._restores())

    async def has_begun(self, number: int) -> bool:
        """Whether this server has tossed for a round."""
        return bool(await self._store.entries(f"{round_prefix(number)}/toss"))

    async def _restores(self) -> list[Restore]:
        return [decode_stored(entry, Restore, RESTORES) for entry in await self._store.entries(RESTORES)]

    async def sweep(self, settled: int, retention: int) -> None:
        """Erase what late requests have left of rounds that are to be forgotten."""
        left = {key.partition("/")[0] for key in await self._store.keys("round-")}
        old = [prefix for prefix in left if int(prefix.removeprefix("round-")) <= settled - retention]
        if old:
            await self._store.commit(*(Erase(f"{prefix}/") for prefix in sorted(old)))

    async def find(self, round_id: bytes) -> PastRound | None:
        """The round of that name, if it is over."""
        key = f"past-number/{round_id.hex()}"
        if not await self._store.keys(key):
            return None
        return await self.number(int.from_bytes(await self._store.blob(key), "little"))

    async def number(self, number: int) -> PastRound:
        """A round that is over, by its number.

        Raises:
            StorageError: there is none of that number.
        """
        key = f"past/{number:08}"
        past: PastRound = decode_stored(await self._store.blob(key), PastRound, key)
        return past


async def standing_of(store: Store, fresh: Progress, arrays: Arrays) -> tuple[Progress, Arrays]:
    """Read back how far a server has got; an empty store begins at `fresh` with these arrays.

    Raises:
        StorageError: the store is another server's or another task's, or cannot be read.
    """
    if not await store.keys(PROGRESS):
        progress = msgspec.structs.replace(fresh, forms=forms(arrays.keyed()))
        await store.commit(*puts(arrays.keyed()), _put(progress))
        return progress, arrays
    progress = decode_stored(await store.blob(PROGRESS), Progress, "the store's standing")
    _check_owner(progress, fresh)
    return progress, Arrays.of(await stored(store, progress.forms))


def settling(
    progress: Progress, past: PastRound, before: Arrays, arrays: Arrays, retention: int
) -> tuple[Progress, list[Change]]:
    """What settles a round, in one commit with what others add to it.

    Args:
        progress: how far the server has got with this round.
        past: the round.
        before: the arrays as they are stored.
        arrays: as they are now; those that are the same objects as before are not written again.
        retention: how many settled rounds keep their submissions and shares.

    Returns:
        The progress as it is stored, and the changes.
    """
    held, written = arrays.keyed(), before.keyed()
    settled = msgspec.structs.replace(progress, forms=forms(held))
    number = past.report.number
    changes: list[Change] = [
        Put(f"past/{number:08}", msgspec.msgpack.encode(past)),
        Put(f"past-number/{past.report.round_id.hex()}", number.to_bytes(8, "little")),
        _put(settled),
    ]
    if isinstance(past.report.ending, Done):
        gone = {_kind(key) for key in progress.forms if key not in held}
        changes += [Erase(prefix) for prefix in sorted(gone)]
        changes += puts(
            {key: array for key, array in held.items() if _kind(key) in gone or written.get(key) is not array}
        )
    if number > retention:
        changes.append(Erase(f"{round_prefix(number - retention)}/"))
    return settled, changes


def _check_owner(stored: Progress, fresh: Progress) -> None:
    if (stored.server, stored.keys) != (fresh.server, fresh.keys):
        raise StorageError(
            f"the store belongs to S{stored.server} with statement key {stored.keys.statement.hex()[:16]}…, and this "
            f"is S{fresh.server} with {fresh.keys.statement.hex()[:16]}…; give every server a store of its own, and "
            "a new one after its keys were replaced"
        )
    if stored.task != fresh.task:
        raise StorageError(f"the store belongs to another task: {_task_difference(stored.task, fresh.task)}")


def _task_difference(stored: bytes, ours: bytes) -> str:
    try:
        difference = first_difference(Task.parse(stored, "the store"), Task.parse(ours, "the task file"))
    except PeerViolationError as error:
        return str(error)
    field, before, now = difference or ("version", "", "")
    return f"{field} is {before} there, {now} in the task file; put the task file back, or begin with a new store"


def _kind(key: str) -> str:
    return f"{key.partition('/')[0]}/"


def _put(progress: Progress) -> Put:
    return Put(PROGRESS, msgspec.msgpack.encode(progress))
