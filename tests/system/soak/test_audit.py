"""The audit finds what is wrong: a sound case passes, and each way of spoiling it is named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from tests.support.cases import in_turn

from .audit import KINDS, Account, Case, audit
from .ledger import Acknowledged, Began, Ledger, Planned, Retrieved, Sent, Told, Touched, TurnedAway, read_ledger

change = msgspec.structs.replace

ROWS, SIZE = 8, 3
CLIENTS = ("ada", "ben", "cem")


def plan(update: int, client: str) -> Planned:
    rng = np.random.default_rng((update, *client.encode()))
    rows = rng.choice(ROWS, 3, replace=False)
    return Planned(
        update=update,
        protocol="ssa",
        blocks={
            "items": Touched(rng.integers(1, 99, size=(3, 2)).tolist(), rows.tolist()),
            "head": Touched(rng.integers(1, 99, size=(SIZE, 1)).tolist(), None),
        },
    )


def add(model: dict[str, Any], planned: Planned) -> None:
    model["items"][planned.blocks["items"].rows] += np.array(planned.blocks["items"].values)
    model["head"] += np.array(planned.blocks["head"].values)


def rounds() -> list[Account]:
    """A union round, a round, one that was aborted, and one without cem, who was turned away and came too late."""
    union = {"items": "1,2,3,4"}
    return [
        Account(1, "r1", "psu", "", list(CLIENTS), {}, union),
        Account(2, "r2", "ssa", "", list(CLIENTS), {}),
        Account(3, "r3", "ssa", "too few", [], {}),
        Account(4, "r4", "ssa", "", ["ada", "ben"], {"cem": "only_s0"}),
    ]


def ledger_of(client: str) -> list[Any]:
    """What a client writes that takes part in all of these rounds."""
    united = {"ada": [1, 2], "ben": [2, 3], "cem": [4]}[client]
    entries: list[Any] = [Began(pid=1), Planned(update=1, protocol="psu", blocks={"items": Touched([], united)})]
    for account in rounds():
        number = account.number
        entries += [plan(number, client)] if number > 1 else []
        entries += [Sent(update=number, server=s, round_id=f"r{number}", content=f"{number}") for s in ("S0", "S1")]
        if (client, number) == ("cem", 4):
            entries.append(TurnedAway(update=4, explanation="it has closed", again=False))
            continue
        told = Told(
            update=number,
            number=number,
            counted=client in account.clients,
            reason="",
            participants=len(account.clients),
        )
        entries += [Acknowledged(update=number, number=number), told]
    return entries


def sound() -> Case:
    start = {"items": np.arange(2 * ROWS).reshape(ROWS, 2), "head": np.arange(SIZE)[:, None]}
    final = {name: array.copy() for name, array in start.items()}
    ledgers = {client: ledger_of(client) for client in CLIENTS}
    for account in rounds():
        if account.protocol == "ssa":
            for client in account.clients:
                add(final, plan(account.number, client))
        if account.number == 2:
            read = Retrieved(number=4, block="items", rows=[5, 1], values=final["items"][[5, 1]].tolist())
            ledgers["ada"].append(read)
    other = {name: array.copy() for name, array in final.items()}
    return Case(
        start, (final, other), (rounds(), rounds()), ledgers, lambda name, found: ",".join(str(row) for row in found)
    )


def swap(case: Case, number: int, **changes: Any) -> Case:
    """The case with another account of one round, on both servers."""
    accounts = [change(each, **changes) if each.number == number else each for each in case.accounts[0]]
    return replace(case, accounts=(accounts, accounts))


def edit(case: Case, client: str, kind: type, work: Callable[[Any], list[Any]]) -> Case:
    """The case with other entries of one kind in a client's ledger."""
    ledger = [new for old in case.ledgers[client] for new in (work(old) if isinstance(old, kind) else [old])]
    return replace(case, ledgers={**case.ledgers, client: ledger})


def without_acknowledged(case: Case) -> Case:
    """A client that has both receipts is left out of the round, of its sum, and is told so."""
    case = swap(case, 2, clients=["ada", "ben"])
    for client in CLIENTS:
        counted = client != "cem"
        case = edit(
            case,
            client,
            Told,
            lambda t, counted=counted: [change(t, counted=counted, participants=2)] if t.number == 2 else [t],
        )
    finals = tuple({name: array.copy() for name, array in final.items()} for final in case.finals)
    for final in finals:
        negative = plan(2, "cem")
        final["items"][negative.blocks["items"].rows] -= np.array(negative.blocks["items"].values)
        final["head"] -= np.array(negative.blocks["head"].values)
    case = edit(case, "ada", Retrieved, lambda r: [])
    return replace(case, finals=finals)


def twice(case: Case) -> Case:
    """An update counts in two rounds: it was sent again although it was in."""
    return edit(case, "ben", Sent, lambda s: [change(s, update=2)] if s.round_id == "r4" else [s])


def two_updates(case: Case) -> Case:
    return edit(case, "ben", Sent, lambda s: [s, change(s, update=9)] if s.round_id == "r4" else [s])


def named_twice(case: Case) -> Case:
    return swap(case, 4, clients=["ada", "ben", "ben"])


def one_value(case: Case) -> Case:
    case.finals[1]["items"][3, 1] += 1
    return case


def one_planned_value(case: Case) -> Case:
    def other(planned: Planned) -> list[Any]:
        if planned.update == 4:
            planned.blocks["head"].values[0][0] += 1
        return [planned]

    return edit(case, "ada", Planned, other)


def silent_client(case: Case) -> Case:
    return edit(case, "ada", Sent, lambda s: [] if s.round_id == "r4" else [s])


def two_hints(case: Case) -> Case:
    return edit(case, "ben", Sent, lambda s: [s, change(s, content="other")] if s.round_id == "r4" else [s])


def told_counted(case: Case) -> Case:
    return edit(case, "ada", Told, lambda t: [change(t, counted=True)] if t.number == 3 else [t])


def turned_away_but_in(case: Case) -> Case:
    return swap(case, 4, clients=["ada", "ben", "cem"], excluded={})


def other_account(case: Case) -> Case:
    """S1 tells of another excluded client than S0."""
    other = [change(each, excluded={"dan": "proof"}) if each.number == 2 else each for each in case.accounts[0]]
    return replace(case, accounts=(case.accounts[0], other))


def one_side_aborted(case: Case) -> Case:
    other = [change(each, aborted="by S1") if each.number == 2 else each for each in case.accounts[0]]
    return replace(case, accounts=(case.accounts[0], other))


def missing_account(case: Case) -> Case:
    return replace(case, accounts=(case.accounts[0], case.accounts[1][:3]))


def gap(case: Case) -> Case:
    accounts = [case.accounts[0][0], *case.accounts[0][2:]]
    return replace(case, accounts=(accounts, accounts))


def stale_retrieval(case: Case) -> Case:
    return edit(case, "ada", Retrieved, lambda r: [change(r, number=2)])


def other_union(case: Case) -> Case:
    return swap(case, 1, union={"items": "1,2,3"})


SPOILT = [
    (without_acknowledged, "lost"),
    (twice, "twice"),
    (two_updates, "twice"),
    (named_twice, "twice"),
    (silent_client, "unknown"),
    (two_hints, "two contents"),
    (told_counted, "told wrong"),
    (turned_away_but_in, "told wrong"),
    (other_account, "accounts"),
    (one_side_aborted, "accounts"),
    (missing_account, "accounts"),
    (gap, "accounts"),
    (one_value, "sum"),
    (one_planned_value, "sum"),
    (stale_retrieval, "retrieval"),
    (other_union, "union"),
]


def test_a_sound_case_has_no_violation():
    assert audit(sound()) == []


@in_turn("spoil, kind", SPOILT)
def test_what_is_wrong_is_found_and_named(spoil, kind):
    found = audit(spoil(sound()))
    assert kind in {violation.kind for violation in found}, found


def test_a_lost_client_is_the_only_thing_that_is_wrong_where_all_else_agrees():
    assert [violation.kind for violation in audit(without_acknowledged(sound()))] == ["lost"]


def test_every_kind_of_violation_is_tried():
    assert {kind for _, kind in SPOILT} == set(KINDS)


def test_a_ledger_is_read_back_without_its_torn_last_line(tmp_path):
    path = tmp_path / "ada.ledger"
    entries = ledger_of("ada")
    ledger = Ledger(path)
    for entry in entries:
        ledger.note(entry)
    with path.open("ab") as torn:
        torn.write(b'{"type":"Told","upd')
    assert read_ledger(path) == entries
    again = Ledger(path)
    again.note(Began(pid=2))
    assert [type(entry) for entry in read_ledger(path)] == [*map(type, entries), Began]
