"""Every check accepts a world in which all went well, and refuses one in which a single thing is otherwise."""

import copy
from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from fsl_async import Privacy, Ring
from fsl_async.config import Draw, RoundConfig
from fsl_async.errors import MisuseError, PeerViolationError, StorageError
from fsl_async.protocols import ssa
from fsl_async.union import describe_union, pack_union
from fsl_async.wire.messages import Opened, Receipt, Refused, Share
from parties.events import RoundOpened, RoundSettled, Warned
from parties.outcome import Aborted, ClientOutcome, RoundReport
from parties.server.round.run import PARTS_APART
from parties.testing import Delay, Ended, Fault, FullDisk, Partition
from parties.testing.story import Began, Entry, Failed
from parties.testing.trials import CHECKS, Case, Scenario, Trial, check_all, run
from parties.testing.trials.members import Read
from parties.watch import Note
from tests.parties.testing import small_world

SEED = 6
CLIENT = "anna"
OTHER = b"\x01" * 32
NOBODYS = np.zeros(0, dtype=np.uint32)


@pytest.fixture(scope="module")
def quiet() -> Case:
    """A trial of three clients and two rounds in which nothing goes wrong."""
    return run(Trial(SEED, Scenario(small_world.TASK, clients=3, rounds=2, seconds=60.0), ())).case


@pytest.fixture
def case(quiet: Case) -> Case:
    """The same, to be spoiled."""
    world = copy.copy(quiet.world)
    for name in ("transcript", "events", "ended", "steps", "contradictions", "settled", "models"):
        value = getattr(world, name)
        deep = name in ("settled", "models")
        setattr(world, name, copy.deepcopy(value) if deep else list(value))
    return replace(quiet, world=world, ledgers=copy.deepcopy(quiet.ledgers))


def report(case: Case, number: int = 1) -> RoundReport:
    return case.world.settled[0][number]


def settle(case: Case, server: int, number: int = 1, **changes: object) -> None:
    """Have a server tell otherwise of a round."""
    reports = case.world.settled[server]
    reports[number] = msgspec.structs.replace(reports[number], **changes)


def shares(case: Case) -> list[Note]:
    return [note for _, note in case.world.transcript if isinstance(note.message, Share)]


def send(case: Case, sender: str, receiver: str, message: object) -> None:
    case.world.transcript.append((case.world.story[-1].at, Note(sender, receiver, message, 0)))  # type: ignore[arg-type]


# ---- one thing that is otherwise, by the check that must find it


def a_server_fails(case: Case) -> None:
    case.world.ended.append(Ended("S0", 1.0, MisuseError("no")))


def a_server_changes_its_mind(case: Case) -> None:
    case.world.contradictions.append("S0 tells of round 1: one thing, and later another")


def two_rounds_of_one_number(case: Case) -> None:
    opened = RoundOpened(number=1, round_id=OTHER, protocol="ssa", closes_at=0.0)
    case.world.events.append((9.0, "S1", opened))


def accounts_differ(case: Case) -> None:
    settle(case, 1, clients=dict(list(report(case).clients.items())[1:]))


def models_differ(case: Case) -> None:
    case.world.models[1][2]["items"][5] += 1


def a_second_share(case: Case) -> None:
    share = shares(case)[0]
    send(case, share.sender, share.receiver, msgspec.structs.replace(share.message, nonce=OTHER))


def aborted_after_revealing(case: Case) -> None:
    settle(case, 0, ending=Aborted("I changed my mind"))
    settle(case, 1, ending=Aborted("I changed my mind"))


def three_contents_acknowledged(case: Case) -> None:
    for byte in b"abc":
        send(case, "S0", CLIENT, Receipt(round_id=report(case).round_id, digest=bytes([byte]) * 32, signature=b""))


def a_sum_of_one(case: Case) -> None:
    at, step = next((at, step) for at, step in enumerate(case.world.steps) if isinstance(step.after, ssa.Committed))
    counted = dict(list(dict(step.after.counted).items())[:1])
    case.world.steps[at] = step._replace(after=msgspec.structs.replace(step.after, counted=counted))


def another_share_than_was_committed_to(case: Case) -> None:
    at, step = next((at, step) for at, step in enumerate(case.world.steps) if isinstance(step.event, ssa.PeerShare))
    case.world.steps[at] = step._replace(event=msgspec.structs.replace(step.event, share=OTHER))


def a_round_is_given_up_for_nothing(case: Case) -> None:
    past = next(told.past for _, _, told in case.world.events if isinstance(told, RoundSettled))
    aborted = msgspec.structs.replace(
        past.report, ending=Aborted("S0 gave up: S1 was awaited in state Closed for 60 s")
    )
    settled = RoundSettled(past=msgspec.structs.replace(past, report=aborted))
    case.world.events.append((100.0, "S0", settled))


def an_acknowledged_client_is_lost(case: Case) -> None:
    for server in (0, 1):
        settle(case, server, clients=tuple(name for name in report(case).clients if name != CLIENT))


def a_client_is_lied_to(case: Case) -> None:
    told = ClientOutcome(number=1, counted=False, reason="because", participants=0)
    case.ledgers[CLIENT].outcomes[1].append(told)


def two_submissions(case: Case) -> None:
    ledger = case.ledgers[CLIENT]
    ledger.contents[report(case).round_id, "S0"].update([b"one", b"another"])


def one_plan_in_two_rounds(case: Case) -> None:
    ledger = case.ledgers[CLIENT]
    ledger.plans[report(case, 2).round_id] = set(ledger.plans[report(case, 1).round_id])


def other_rows_than_asked_for(case: Case) -> None:
    ledger = next(ledger for ledger in case.ledgers.values() if ledger.retrieved)
    ledger.retrieved[0] = replace(ledger.retrieved[0], values=np.asarray(ledger.retrieved[0].values) + 1)


def counted_twice(case: Case) -> None:
    for server in (0, 1):
        case.world.models[server][2]["head"][0] += 4 ** case.ledgers[CLIENT].digit


def a_client_is_missing_in_the_sum(case: Case) -> None:
    for server in (0, 1):
        case.world.models[server][2]["head"] -= 4 ** case.ledgers[CLIENT].digit


def a_round_never_ends(case: Case) -> None:
    del case.world.settled[1][2]


def a_client_is_put_off(case: Case) -> None:
    send(case, "S0", CLIENT, Refused(reason="busy", explanation="later"))


def a_spoiled_submission_counts(case: Case) -> None:
    object.__setattr__(case, "spoiled", {CLIENT: frozenset({report(case).round_id})})


def a_refused_submission_counts(case: Case) -> None:
    ledger = case.ledgers[CLIENT]
    ledger.refused[report(case).round_id] |= ledger.plans[report(case).round_id]


def a_server_never_comes_up(case: Case) -> None:
    at = case.world.story[-1].at
    for number in range(2, 20):
        case.world.story.append(Entry(at, "S0", Began(number)))
        case.world.story.append(Entry(at, "S0", Failed(StorageError("it contradicts itself"))))


def a_receipt_is_late(case: Case) -> None:
    notes = case.world.transcript
    notes[:] = [(at + 60 if isinstance(note.message, Receipt) else at, note) for at, note in notes]
    last = case.world.story[-1]
    case.world.story.append(last._replace(at=last.at + 60))


def the_servers_draw_differently(case: Case) -> None:
    """What was announced, as if the task drew its clients; S1 drew everybody, and S0 nobody."""
    for place, (at, note) in enumerate(case.world.transcript):
        if isinstance(note.message, Opened):
            config = RoundConfig.parse(note.message.config, note.sender)
            task = msgspec.structs.replace(config.task, sample=config.task.quorum)
            drawn = Draw(asked=task.max_clients, size=task.quorum, digest=bytes(32))
            announced = msgspec.structs.replace(config, task=task, sample=drawn).canonical()
            told = Opened(announced, drawn=note.sender == "S1")
            case.world.transcript[place] = at, Note(note.sender, note.receiver, told, 0)


def a_sum_is_added_that_is_to_be_divided(case: Case) -> None:
    case.world.task = msgspec.structs.replace(case.world.task, apply="mean", ring=Ring(32, fraction_bits=1))


def a_union_of_other_rows_is_found(case: Case) -> None:
    settle(case, 0, union=tuple(describe_union(b.name, NOBODYS, b.rows) for _, b in case.world.task.sparse_blocks()))


def a_union_is_read_that_no_round_has_found(case: Case) -> None:
    unions = {block.name: NOBODYS for _, block in case.world.task.sparse_blocks()}
    case.ledgers[CLIENT].read.append(Read(1, unions))


def no_round_is_charged(case: Case) -> None:
    privacy = Privacy(noise=1e-6, delta=1e-6, budget=1e15)
    bounded = {"bound": 2.0**20, "bound_proof": "projected", "privacy": privacy}
    case.world.task = msgspec.structs.replace(case.world.task, **bounded)


def a_server_keeps_two_parts_of_one_request(case: Case) -> None:
    told = Warned(about="blobs", explanation=f"{PARTS_APART} of {CLIENT!r}")
    case.world.events.append((1.0, "S1", told))


def an_honest_answer_is_refused(case: Case) -> None:
    case.ledgers[CLIENT].wrong_answers += 1


def rows_of_nobody_are_opened(case: Case) -> None:
    case.world.task = msgspec.structs.replace(case.world.task, min_contributors=2, lying_clients=0)
    blocks = [block for _, block in case.world.task.sparse_blocks()]
    everything = {block.name: pack_union(np.arange(block.rows, dtype=np.uint32), block.rows) for block in blocks}
    settle(case, 0, opened_rows=everything)
    settle(case, 0, 2, opened_rows=everything)


SPOILED: dict[str, list[Callable[[Case], None]]] = {
    "nobody fails": [a_server_fails],
    "comes up again": [a_server_never_comes_up],
    "one account": [a_server_changes_its_mind],
    "one round per number": [two_rounds_of_one_number],
    "same outcomes": [accounts_differ, models_differ],
    "one sum per round": [a_second_share],
    "one part per request": [a_server_keeps_two_parts_of_one_request],
    "every sum is charged": [no_round_is_charged],
    "revealed means done": [aborted_after_revealing],
    "one receipt per round": [three_contents_acknowledged],
    "nothing below the minimum": [a_sum_of_one],
    "shares as committed": [another_share_than_was_committed_to],
    "nobody waits for a receipt": [a_receipt_is_late],
    "nobody is awaited in vain": [a_round_is_given_up_for_nothing],
    "acknowledged means counted": [an_acknowledged_client_is_lost],
    "told the truth": [a_client_is_lied_to],
    "one submission per epoch": [two_submissions],
    "one plan per round": [one_plan_in_two_rounds],
    "values in one sum": [one_plan_in_two_rounds],
    "retrieved the model": [other_rows_than_asked_for],
    "honest answers are right": [an_honest_answer_is_refused],
    "contributors": [rows_of_nobody_are_opened],
    "digits": [counted_twice, a_client_is_missing_in_the_sum],
    "unions": [a_union_of_other_rows_is_found],
    "read the last union": [a_union_is_read_that_no_round_has_found],
    "everybody ends": [a_round_never_ends],
    "nobody asks in vain": [a_client_is_put_off],
    "spoiled is not counted": [a_spoiled_submission_counts],
    "refused means not counted": [a_refused_submission_counts],
    "those drawn take part": [the_servers_draw_differently],
    "rules": [a_sum_is_added_that_is_to_be_divided],
}


def test_every_check_is_tested_here() -> None:
    assert set(SPOILED) == set(CHECKS)


def test_where_all_went_well_no_check_complains(quiet: Case) -> None:
    assert check_all(quiet) == []
    assert quiet.world.settled[0].keys() == {1, 2}
    assert all(ledger.acknowledged for ledger in quiet.ledgers.values())
    assert any(ledger.retrieved for ledger in quiet.ledgers.values()), f"seed {SEED} shows too little"
    assert shares(quiet)


@pytest.mark.parametrize(("check", "spoil"), [(name, spoil) for name, spoils in SPOILED.items() for spoil in spoils])
def test_a_check_finds_the_one_thing_that_is_otherwise(case: Case, check: str, spoil: Callable[[Case], None]) -> None:
    assert not list(CHECKS[check](case))
    spoil(case)
    found = [violation for violation in check_all(case) if violation.check == check]
    assert found, f"{check!r} accepts a world where {spoil.__name__.replace('_', ' ')}"
    assert all(str(violation).startswith(f"{check}: ") for violation in found)


@pytest.mark.parametrize(
    ("fault", "excuses"),
    [
        (Partition("S0", "S1", begin=60.0, seconds=20.0), True),
        (Partition("S0", "S1", begin=10.0, seconds=20.0), False),
        (Partition("S0", CLIENT, begin=60.0, seconds=20.0), False),
        (FullDisk("S1", begin=90.0, seconds=5.0), True),
        (Delay("S1", connection=1, seconds=3.0), True),
        (Delay(CLIENT, connection=1, seconds=3.0), False),
    ],
)
def test_who_is_kept_from_the_other_server_may_give_a_round_up(case: Case, fault: Fault, excuses: bool) -> None:
    a_round_is_given_up_for_nothing(case)
    struck = replace(case, faults=(fault,))
    complains = bool(list(CHECKS["nobody is awaited in vain"](struck)))
    assert complains is not excuses


def test_who_meets_a_malicious_server_may_halt_if_it_names_it(case: Case) -> None:
    honest = replace(case, honest=frozenset({0}))
    for error, fails in ((PeerViolationError("S1", "lied"), False), (PeerViolationError("anna", "lied"), True)):
        honest.world.ended[:] = [Ended("S0", 1.0, error)]
        assert bool(list(CHECKS["nobody fails"](honest))) == fails
