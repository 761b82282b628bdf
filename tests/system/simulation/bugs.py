"""Bugs to plant in the real code, one rule of it broken by each: what the laboratory must find.

A bug is a small change of one function or two, written as the text that it replaces and the text that replaces it. So
it breaks the code as it is now; when that changes under it, planting fails and says so, and nothing seems to be found
that is not there any more.
"""

import __future__

import importlib
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import pytest


@dataclass(frozen=True)
class Edit:
    """A change of one function.

    Attributes:
        where: its module, a colon, and its name there.
        old: text that occurs in it once.
        new: the text that replaces it.
    """

    where: str
    old: str
    new: str


class Bug:
    """A rule that is broken.

    Attributes:
        breaks: which rule that is.
        edits: how it is made to.
        alone: whether honest parties alone show it; else it takes a malicious client or server.
    """

    def __init__(self, breaks: str, *edits: Edit, alone: bool = True) -> None:
        self.breaks, self.edits, self.alone = breaks, edits, alone


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Within this context the code has the bug.

    Raises:
        LookupError: the code is not what the bug was made for.
    """
    with pytest.MonkeyPatch.context() as patch:
        for where in dict.fromkeys(edit.where for edit in bug.edits):
            _make(where, [edit for edit in bug.edits if edit.where == where], patch)
        yield


def _make(where: str, edits: list[Edit], patch: pytest.MonkeyPatch) -> None:
    """Give a function another code: it stays the same function, for whoever has imported it by name has it as well."""
    function = _find(where)
    source = textwrap.dedent(inspect.getsource(function)).removeprefix("@MACHINE.transition\n")
    for edit in edits:
        source = _changed(source, edit)
    made: dict[str, Any] = {}
    code = compile(source, where, "exec", flags=__future__.annotations.compiler_flag)
    exec(code, function.__globals__, made)
    patch.setattr(function, "__code__", inspect.unwrap(made[function.__name__]).__code__)


def _changed(source: str, edit: Edit) -> str:
    """The source with the edit made; further lines of it are indented as the one that it begins in."""
    first = edit.old.partition("\n")[0]
    if source.count(first) >= 1:
        line = source[: source.index(first)].rpartition("\n")[2]
        indent = line[: len(line) - len(line.lstrip())]
        old, new = (text.replace("\n", f"\n{indent}") for text in (edit.old, edit.new))
        if source.count(old) == 1:
            return source.replace(old, new)
    raise LookupError(f"{edit.where} has not once what the bug changes: {edit.old!r}; plant it otherwise")


def _find(where: str) -> FunctionType:
    module, _, path = where.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    if not isinstance(found, FunctionType):
        raise LookupError(f"{where} is no function; plant it otherwise")
    return found


# ---- where the rules are kept

TAKE = "parties.server.round.run:RoundRun.take"
RECORD = "await self.records.own.commit(*changes, *records)"
RECEIPT = "parties.server.clients.submissions:Submissions._receipt"
ROUND = "fsl_async.protocols.ssa.transitions"
STEP = "return MACHINE.step(state, event, terms)"
SETTLE = "parties.server.round_sequence:RoundSequence._settle"
SETTLING = "await records.store.commit(*changes, *settling, *remembered)"
DRAFTED = "parties.client.participation:Participation.drafted"


def _unrecorded(event: str) -> Edit:
    return Edit(TAKE, RECORD, f"if type(event).__name__ != {event!r}:\n    {RECORD}")


BUGS: Mapping[str, Bug] = {
    # ---- durable first, visible second
    "a receipt before the list is written": Bug(
        "nothing is acknowledged that a crash may take back",
        Edit(
            TAKE,
            RECORD,
            "for each in events:\n    if hasattr(each, 'client'):\n"
            f"        driver.places.enter(each.client, each.digest)\n{RECORD}",
        ),
    ),
    "of submissions that are entered together only the first is recorded": Bug(
        "every event is recorded, also those that one commit takes",
        Edit(TAKE, "for each in events]", "for each in events[:1]]"),
    ),
    "a receipt before the submission is written": Bug(
        "a submission is in the store before it is acknowledged",
        Edit(
            RECEIPT,
            "try:\n    changes: ",
            "await self._inbox.post(run.round_id, ssa.Submitted(client, name))\ntry:\n    changes: ",
        ),
    ),
    "acts before it records": Bug(
        "an event is recorded, then adopted, then acted upon",
        Edit(TAKE, RECORD, "pass"),
        Edit(TAKE, "self._begin_effects(before, events, done)", f"self._begin_effects(before, events, done)\n{RECORD}"),
    ),
    "a list that is closed but not recorded": Bug(
        "one roster per round, also after a restart",
        _unrecorded("CloseRound"),
    ),
    "the peer's list is not recorded": Bug(
        "what the peer has said is recorded before it is acted upon",
        _unrecorded("PeerRoster"),
    ),
    "a share's nonce is not recorded": Bug("one commitment per round, also after a restart", _unrecorded("Summed")),
    "the peer's commitment is not recorded": Bug(
        "a share is revealed only when the peer's commitment is durable",
        _unrecorded("PeerCommitment"),
    ),
    "a toss that is not recorded": Bug(
        "a server that restarts tosses the same again",
        Edit("parties.server.round.toss:TossRun.begin", "await store.commit(Record(journal, *recorded))", "pass"),
    ),
    "the peer's half of a toss is not recorded": Bug(
        "what the peer has said is recorded before it is acted upon",
        Edit(
            "parties.server.round.toss:TossRun.take",
            "await self._store.commit(Record(_journal(self.number), msgspec.msgpack.encode(event)))",
            "pass",
        ),
    ),
    "the model is settled before its round's number": Bug(
        "settling a round is one commit",
        Edit(
            SETTLE,
            SETTLING,
            "early = (change for change in settling[3:] if hasattr(change, 'key'))\n"
            f"await records.store.commit(*early)\n{SETTLING}",
        ),
    ),
    "a round's number is settled before its model": Bug(
        "settling a round is one commit",
        Edit(
            SETTLE,
            SETTLING,
            "await records.store.commit(*changes, *settling[:3], *remembered)\nawait records.store.commit(*settling)",
        ),
    ),
    "erases a round before it is settled": Bug(
        "what a restart needs is erased only by the commit that makes it needless",
        Edit(
            SETTLE,
            SETTLING,
            "from parties.storage.store import Erase\n"
            f"await records.store.commit(Erase(f'{{run.records.prefix}}/'))\n{SETTLING}",
        ),
    ),
    "a commit returns before it is synced": Bug(
        "when a commit returns, it is durable",
        Edit("parties.testing.disk:DiskStore.commit", "self._disk.sync()", "pass"),
    ),
    "a torn entry is taken for a whole one": Bug(
        "a store goes back to its last whole entry",
        Edit("parties.testing.disk:_whole_entries", " or zlib.crc32(body) != checksum", ""),
    ),
    # ---- who is counted
    "a receipt for who is not on the list": Bug(
        "a receipt is sent only when the submission stands in the round's list",
        Edit(RECEIPT, "if not await places.wait_entered(client):", "if False:"),
    ),
    "counts whom only one server has": Bug(
        "the roster is what both servers hold",
        Edit(
            f"{ROUND}:_agree",
            "if theirs.get(client) == ours[client]",
            "if theirs.get(client, ours[client]) == ours[client]",
        ),
    ),
    "counts submissions whose digests differ": Bug(
        "the roster is what both servers hold with equal digests",
        Edit(f"{ROUND}:_agree", "if theirs.get(client) == ours[client]", "if client in theirs"),
        alone=False,
    ),
    "no minimum for a roster": Bug(
        "nothing is revealed below the minimum",
        Edit(f"{ROUND}:_agree", "if len(roster) < terms.minimum:", "if not roster:"),
    ),
    "no minimum after verification": Bug(
        "nothing is revealed below the minimum, also when proofs have failed",
        Edit(f"{ROUND}:_verify", "if len(counted) < terms.minimum:", "if not counted:"),
        alone=False,
    ),
    "counts whose proof fails": Bug(
        "who is not proved is not counted",
        Edit(f"{ROUND}:_failed", "if not same(mine[:DIGEST_BYTES], other[:DIGEST_BYTES]):", "if False:"),
        alone=False,
    ),
    "counts whose bound is not proved": Bug(
        "who is not proved is not counted",
        Edit(
            f"{ROUND}:_failed",
            "elif terms.bound is not None and not accepts(terms.bound, mine[DIGEST_BYTES:], other[DIGEST_BYTES:]):",
            "elif False:",
        ),
        alone=False,
    ),
    "leaves in the sum who is not counted": Bug(
        "the sum is that of the roster",
        Edit("parties.server.round.accumulation:Accumulator._exactly", "if unwanted:", "if False:"),
    ),
    "adds the first of a batch alone": Bug(
        "the sum is that of the roster",
        Edit("fsl_async.server.batch:Batch._add", "for prepared in ready]", "for prepared in ready[:1]]"),
    ),
    "adds submissions once more after a restart": Bug(
        "a submission is added once",
        Edit(
            "parties.server.round.computation:Computation.begin",
            "self.sum.put(client)",
            "self.sum.put(client)\nself.sum.put(client)",
        ),
    ),
    "takes submissions after the list is sent": Bug(
        "the first server to close freezes its list",
        Edit(
            "parties.server.round.aggregating:Aggregation.admits", "case ssa.Open():", "case ssa.Open() | ssa.Closed():"
        ),
        Edit(
            f"{ROUND}:step",
            STEP,
            "if isinstance(state, Closed) and isinstance(event, Submitted):\n"
            f"    return Closed(_entered(state.entries, event))\n{STEP}",
        ),
    ),
    # ---- the sum
    "reveals with its commitment": Bug(
        "a share is revealed only after the peer's commitment",
        Edit(
            "fsl_async.protocols.ssa.side_effects:effects",
            "*(_send_counts(counts, terms) for counts in state.counts[terms.server :][:1]),\n"
            "_send_commitment(state, terms),",
            "*(_send_counts(counts, terms) for counts in state.counts[terms.server :][:1]),\n"
            "_send_commitment(state, terms),\n"
            "_send_share(state.share, state.nonce, terms),",
        ),
    ),
    "takes a share that was not committed to": Bug(
        "a share that does not match its commitment halts",
        Edit(f"{ROUND}:_combine", "if not same(state.peer_commitment, expected):", "if False:"),
        alone=False,
    ),
    "gives up after it has committed": Bug(
        "who has committed does not give up any more",
        Edit(
            "parties.server.actor:Actor._take_own",
            "case GaveUp() if not run.accepts(GaveUp):",
            "case GaveUp() if not run.accepts(GaveUp) and not isinstance(run.state, ssa.Committed | ssa.Revealed):",
        ),
        Edit(
            TAKE,
            "if not self.accepts(type(event)) and accepted_later(",
            "if not self.accepts(type(event)) and type(event).__name__ != 'GaveUp' and accepted_later(",
        ),
        Edit(
            f"{ROUND}:step",
            STEP,
            "if isinstance(event, GaveUp) and isinstance(state, Committed | Revealed):\n"
            f"    return _abort(state, event, terms)\n{STEP}",
        ),
    ),
    # ---- going on
    "says nothing again when the servers have met": Bug(
        "each time the servers meet, each says again what the other may lack",
        Edit("parties.server.actor:Actor._take", "self._resend()", "pass"),
    ),
    "takes for known what a restart has lost": Bug(
        "a part that was on loan is taken again when its carrier forwards it again",
        Edit(
            "parties.server.peer.forwarding:take_in",
            "if run.requests.wants(key, name) or run.records.awaits(key, name):",
            "if run.requests.wants(key, name):",
        ),
    ),
    "does not wait for what a restart has lost": Bug(
        "a server evaluates when it has all that it needs",
        Edit("parties.server.round.run:RoundRun._restore_requests", "self.records.await_part(key, part)", "pass"),
    ),
    "calls an own rule again after a restart": Bug(
        "a server stands by what its own rule gave",
        Edit(
            "parties.server.round.conclusion:conclude",
            'if start.config.task.rule == "own" else None',
            "if False else None",
        ),
    ),
    "applies although the outcomes differ": Bug(
        "where the own rule gave the servers different outcomes, nothing is applied",
        Edit("parties.server.round.computation:Computation.withdraw", "if self.opened is not None:", "if False:"),
    ),
    "its last words are what came of it": Bug(
        "a server repeats the outcome at which it had arrived itself",
        Edit(
            "parties.server.round_sequence:_last_words",
            "Conclusion(past.report.round_id, past.concluded)",
            "Conclusion(past.report.round_id, past.report.digest())",
        ),
    ),
    "does not keep the optimizer's state": Bug(
        "the state is in the store, in one commit with the model",
        Edit("parties.server.history:Arrays.keyed", '| keyed("state/", self.state)', ""),
    ),
    "divides by all clients that may come": Bug(
        "a mean is over the counted clients",
        Edit("fsl_async.server.rules:_divisor", "return float(clients)", "return float(task.max_clients)"),
    ),
    "one decay stands for the other": Bug(
        "the optimizer takes one step in a round",
        Edit(
            "fsl_async.server.rules:_step",
            "second = beta2 * second + (1 - beta2) * (change * change)",
            "second = beta2 * second + (1 - beta1) * (change * change)",
        ),
    ),
    "does not repeat its last words": Bug(
        "a server that has settled a round still tells the peer how it ended",
        Edit("parties.server.round_sequence:RoundSequence.resend", "self._link.post(_last_words(past))", "pass"),
    ),
    "does not repeat its half of a toss": Bug(
        "each time the servers meet, each says again what the other may lack",
        Edit("parties.server.round_sequence:RoundSequence.resend", "self._toss.resend()", "pass"),
    ),
    "does not repeat who has asked": Bug(
        "each time the servers meet, each says again what the other may lack",
        Edit("parties.server.round_sequence:RoundSequence.resend", "self._sample.resend()", "pass"),
    ),
    "who has asked is not recorded": Bug(
        "one list of who asked per round, also after a restart",
        Edit(
            "parties.server.round.drawing:SampleRun._adopt",
            "await self._store.commit(Record(_journal(self.number), msgspec.msgpack.encode(event)))",
            "pass",
        ),
    ),
    "each server ranks clients by itself": Bug(
        "both servers draw the same clients",
        Edit(
            "parties.server.round.drawing:SampleRun.begin",
            "secret_of(tossed.proof_key)",
            "secret_of(tossed.proof_key + bytes([tossed.half.server]))",
        ),
    ),
    "tells everybody that they are drawn": Bug(
        "as many are told that they are drawn as are drawn",
        Edit(
            "parties.server.clients.requests:_opened",
            "Opened(run.config.canonical(), strange, run.start.is_drawn(client))",
            "Opened(run.config.canonical(), strange, True)",
        ),
    ),
    "drops what is on its way when it is sent": Bug(
        "a message stays among the effects until an answer proves that the peer has it",
        Edit(
            "fsl_async.protocols.ssa.side_effects:effects",
            "case Committed():\n    return (\n        _send_roster(state.entries, terms),\n"
            "        *_send_proofs(state.proofs, terms),\n",
            "case Committed():\n    return (\n",
        ),
    ),
    "nobody is woken when a submission is in": Bug(
        "whoever waits for a round is woken when it changes",
        Edit("parties.server.round.places:ClientPlaces._wake", "self._awaited.pop(client).set()", "pass"),
    ),
    "nobody is woken when a round is settled": Bug(
        "whoever waits for a round's end is woken by it",
        Edit("parties.server.round.run:RoundRun._end_waiting", "self.settled.set()", "pass"),
    ),
    "nobody is woken when a round opens": Bug(
        "whoever waits for a round is woken when one opens",
        Edit("parties.server.round_sequence:RoundSequence._open", "self._rounds.opened.set()", "pass"),
    ),
    "waits for stragglers for ever": Bug(
        "submissions that only the peer holds are waited for no longer than the grace period",
        Edit("parties.server.round.aggregating:Aggregation.perform", "timers.start_grace()", "pass"),
    ),
    "keeps two parts of one request": Bug(
        "what the peer forwards is judged before it is stored, so that a restart finds no contradiction",
        Edit(
            "parties.server.round.assembly:RequestAssembly.wants",
            "return wanted and self._coming.setdefault(key, part) == part",
            "return True",
        ),
        alone=False,
    ),
    # ---- clients
    "forgets its draft": Bug(
        "a submission's bytes are kept before the first of them is sent",
        Edit(DRAFTED, "await self._state.store_draft(draft, session)", "pass"),
    ),
    "takes a lost receipt for a refusal": Bug(
        "a submission that a server may have is not given up before its round's outcome is known",
        Edit(
            "parties.client.submitting:Submitter.deliver",
            "receipt = await self._outcomes.receipt(self._latest(draft), closed)",
            "await self._participation.settle(draft.summary(), Leave(), counted=False); raise",
        ),
    ),
    "believes one server that a round has closed": Bug(
        "once a byte of a submission has left, only what both servers have signed says that it counts nowhere",
        Edit(
            "parties.client.outcomes:Outcomes.receipt",
            "outcome = await self.learn()",
            "await self._participation.settle(draft.summary(), Leave(), counted=False); raise closed",
        ),
        alone=False,
    ),
    "submits again what was counted": Bug(
        "who calls again after an interruption is told that the submission was counted",
        Edit("parties.client.outcomes:Outcomes.refuse_counted", "if outcome.counted:", "if False:"),
    ),
    "erases a submission at its first receipt": Bug(
        "a submission's bytes are kept until both servers have it",
        Edit(
            "parties.client.state:ClientState.store_receipt",
            'await self._store.commit(_put("submission", StoredPending(draft.stored())))',
            'await self._store.commit(_put("submission", StoredPending(draft.stored())), Erase("bulk/"))',
        ),
    ),
    "keeps trees that were not counted": Bug(
        "a session stands only once the submission that brought its trees was counted",
        Edit(
            "parties.client.session:settled",
            "epochs.Counted(epoch) if counted else epochs.Dropped(epoch)",
            "epochs.Counted(epoch)",
        ),
    ),
    "loses trees that were counted": Bug(
        "trees of submissions that were counted stay",
        Edit("parties.server.sessions:Sessions.settle", "await self._keep_trees(epoch, protocol, brought)", "pass"),
    ),
    "believes one server's account": Bug(
        "an outcome counts only if both servers tell it",
        Edit(
            "parties.client.outcomes:learn_outcome", "if not _same_ending(statements[0], statements[1]):", "if False:"
        ),
        alone=False,
    ),
}
"""By what the code does then."""
