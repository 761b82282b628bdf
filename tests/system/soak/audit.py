"""What must hold after a soak, checked from what the parties wrote: ledgers, accounts of rounds, models.

The checker knows nothing of the protocol. It adds up in plain integers what the clients' ledgers say they sent in each
round to those whom the servers' accounts say they counted, and compares. What it looks for, by name:

    lost          both receipts were given, the round is done, and the client is not in it
    twice         one update stands in two rounds, or two updates of one client in one round
    unknown       a client was counted that sent nothing in that round
    two contents  for one round a client sent a server two different submissions: with trees that stay, two hints for
                  one epoch
    told wrong    a client was told something else than what the accounts say
    accounts      the servers' accounts of a round differ, one is missing, or a server's changed
    sum           a server's model is not the start plus the counted updates
    retrieval     a client retrieved something else than the model before its round
    union         the union that was found is not that of the counted clients' rows
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from .ledger import Acknowledged, Entry, Planned, Retrieved, Sent, Told, TurnedAway

KINDS = ("lost", "twice", "unknown", "two contents", "told wrong", "accounts", "sum", "retrieval", "union")

Units = dict[str, npt.NDArray[np.int64]]
"""Weights in whole units: by block (rows, width), or (size, 1)."""


class Account(msgspec.Struct, frozen=True):
    """A round as one server tells it; digests as hexadecimal text."""

    number: int
    round_id: str
    protocol: str
    aborted: str
    clients: list[str]
    excluded: dict[str, str]
    union: dict[str, str] = {}

    @property
    def done(self) -> bool:
        """Whether the round has a sum."""
        return not self.aborted


@dataclass(frozen=True)
class Violation:
    """Something that must not be."""

    kind: str
    explanation: str


@dataclass(frozen=True)
class Case:
    """All that the checker is given.

    Attributes:
        start: the model that both servers started from.
        finals: S0's and S1's model at the end.
        accounts: S0's and S1's, of all rounds.
        ledgers: by client.
        union_digest: gives what an account says of a union, from block and rows.
    """

    start: Units
    finals: tuple[Units, Units]
    accounts: tuple[Sequence[Account], Sequence[Account]]
    ledgers: Mapping[str, Sequence[Entry]]
    union_digest: Any = field(default=None)


@dataclass
class _Book:
    """One client's ledger, sorted."""

    plans: dict[int, Planned] = field(default_factory=dict)
    sent: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    contents: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    acknowledged: list[Acknowledged] = field(default_factory=list)
    turned_away: list[TurnedAway] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    retrieved: list[Retrieved] = field(default_factory=list)


def audit(case: Case) -> list[Violation]:
    """Everything that is wrong; nothing, where all is well."""
    books = {client: _sorted(ledger) for client, ledger in case.ledgers.items()}
    return [*_accounts(case), *_submissions(case, books), *_told(case, books), *_sums(case, books)]


def _sorted(ledger: Sequence[Entry]) -> _Book:
    book = _Book()
    for entry in ledger:
        match entry:
            case Planned():
                book.plans[entry.update] = entry
            case Sent():
                book.sent[entry.round_id].add(entry.update)
                book.contents[entry.round_id, entry.server].add(entry.content)
            case Acknowledged():
                book.acknowledged.append(entry)
            case TurnedAway():
                book.turned_away.append(entry)
            case Told():
                book.told.append(entry)
            case Retrieved():
                book.retrieved.append(entry)
    return book


# ---- accounts


def _accounts(case: Case) -> Iterator[Violation]:
    """Both servers have the same accounts of the same rounds, with none left out."""
    for server, accounts in enumerate(case.accounts):
        numbers = [account.number for account in accounts]
        if numbers != list(range(1, len(numbers) + 1)):
            yield Violation("accounts", f"S{server} has accounts of rounds {numbers}, not of all up to the last")
    for first, second in zip(*case.accounts, strict=False):
        ours, theirs = (msgspec.structs.replace(each, aborted=str(bool(each.aborted))) for each in (first, second))
        if ours != theirs:
            yield Violation("accounts", f"round {first.number}: S0 tells {first}, S1 tells {second}")
    settled = min(len(accounts) for accounts in case.accounts)
    for client, ledger in case.ledgers.items():
        for entry in ledger:
            if isinstance(entry, Acknowledged | Told) and entry.number > settled:
                yield Violation("accounts", f"{client} was in round {entry.number}; both tell only of {settled} rounds")


# ---- submissions


def _submissions(case: Case, books: Mapping[str, _Book]) -> Iterator[Violation]:
    rounds = {account.number: account for account in case.accounts[0]}
    for client, book in books.items():
        for (round_id, server), contents in book.contents.items():
            if len(contents) > 1:
                yield Violation("two contents", f"{client} sent {server} {len(contents)} for round {round_id[:16]}")
        for entry in book.acknowledged:
            account = rounds.get(entry.number)
            if account is not None and account.done and client not in account.clients:
                reason = account.excluded.get(client, "no reason given")
                yield Violation(
                    "lost", f"{client}'s update {entry.update}, acknowledged in round {entry.number}: {reason}"
                )
    yield from _counting(case, books)


def _counting(case: Case, books: Mapping[str, _Book]) -> Iterator[Violation]:
    """Every counted client sent exactly one update in that round, and no update counts in two."""
    where: dict[tuple[str, int], int] = {}
    for account in case.accounts[0]:
        if len(set(account.clients)) != len(account.clients):
            yield Violation("twice", f"round {account.number} names a client twice: {account.clients}")
        for client in account.clients:
            updates = books[client].sent.get(account.round_id, set()) if client in books else set()
            if not updates:
                yield Violation("unknown", f"round {account.number} counts {client}, who sent nothing in it")
            elif len(updates) > 1:
                yield Violation("twice", f"{client} sent updates {sorted(updates)} in round {account.number}")
            for update in updates:
                before = where.setdefault((client, update), account.number)
                if before != account.number:
                    yield Violation("twice", f"{client}'s update {update}: rounds {before} and {account.number}")


# ---- what clients were told


def _told(case: Case, books: Mapping[str, _Book]) -> Iterator[Violation]:
    rounds = {account.number: account for account in case.accounts[0]}
    by_id = {account.round_id: account for account in case.accounts[0]}
    for client, book in books.items():
        for told in book.told:
            account = rounds.get(told.number)
            if account is None:
                continue  # said elsewhere: an account is missing
            if told.counted != (client in account.clients) or told.participants != len(account.clients):
                yield Violation("told wrong", f"{client} heard of round {told.number}: {told}; the account: {account}")
        for entry in book.turned_away:
            for round_id, updates in book.sent.items():
                account = by_id.get(round_id)
                if entry.update in updates and account is not None and client in account.clients:
                    text = f"{client} heard that update {entry.update} does not count: {entry.explanation!r}; it does"
                    if _after_last_send(book, entry, case.ledgers[client]):
                        yield Violation("told wrong", f"{text}, in round {account.number}")
        for number, answers in itertools.groupby(sorted(book.told, key=lambda told: told.number), lambda t: t.number):
            if len({(told.counted, told.participants) for told in answers}) > 1:
                yield Violation("told wrong", f"{client} was told two outcomes of round {number}")


def _after_last_send(book: _Book, away: TurnedAway, ledger: Sequence[Entry]) -> bool:
    """Whether the client did not submit the same update again after it was turned away."""
    later = itertools.dropwhile(lambda entry: entry is not away, ledger)
    return not any(isinstance(entry, Sent) and entry.update == away.update for entry in later)


# ---- sums


def _sums(case: Case, books: Mapping[str, _Book]) -> Iterator[Violation]:
    """The model round by round: retrievals are from the one before, the last one is what both servers hold."""
    model = {name: array.copy() for name, array in case.start.items()}
    for account in case.accounts[0]:
        yield from _retrievals(account.number, model, books)
        plans = list(_counted_plans(account, books))
        if account.protocol == "psu":
            yield from _union(case, account, plans)
            continue
        for plan in plans:
            _add(model, plan)
    for server, final in enumerate(case.finals):
        for name, expected in model.items():
            wrong = int(np.count_nonzero(final[name] != expected))
            if wrong:
                yield Violation(
                    "sum", f"S{server}: {wrong} weights of block {name!r} are not what the updates add up to"
                )


def _counted_plans(account: Account, books: Mapping[str, _Book]) -> Iterator[Planned]:
    for client in account.clients:
        book = books.get(client, _Book())
        for update in sorted(book.sent.get(account.round_id, set()))[:1]:
            yield book.plans[update]


def _add(model: Units, plan: Planned) -> None:
    for name, touched in plan.blocks.items():
        values = np.array(touched.values, dtype=np.int64)
        if touched.rows is None:
            model[name] += values
        elif touched.rows:
            model[name][touched.rows] += values


def _retrievals(number: int, model: Units, books: Mapping[str, _Book]) -> Iterator[Violation]:
    for client, book in books.items():
        for entry in book.retrieved:
            if entry.number == number:
                expected = model[entry.block] if entry.rows is None else model[entry.block][entry.rows]
                if not np.array_equal(expected, np.array(entry.values).reshape(expected.shape)):
                    yield Violation("retrieval", f"{client} retrieved other rows of {entry.block!r} in round {number}")


def _union(case: Case, account: Account, plans: Sequence[Planned]) -> Iterator[Violation]:
    if not account.done:
        return
    for name, announced in account.union.items():
        rows = {row for plan in plans for row in (plan.blocks[name].rows or [])}
        if case.union_digest(name, sorted(rows)) != announced:
            yield Violation("union", f"round {account.number}: the union of {name!r} is not that of {len(rows)} rows")
