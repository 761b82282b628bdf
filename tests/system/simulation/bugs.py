"""Bugs to plant in the real code, one rule of it broken by each: what the laboratory must find.

A bug is a small change of one function or two, written as the text that it replaces and the text that replaces it. So
it breaks the code as it is now; when that changes under it, planting fails and says so, and nothing seems to be found
that is not there any more.
"""

import __future__

import importlib
import inspect
import textwrap
from collections.abc import Iterator
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
        name: what the code does then.
        breaks: which rule that is.
        edits: how it is made to.
        alone: whether honest parties alone show it; else it takes a malicious client or server.
    """

    def __init__(self, name: str, breaks: str, *edits: Edit, alone: bool = True) -> None:
        self.name, self.breaks, self.edits, self.alone = name, breaks, edits, alone


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


BUGS = (
    # ---- durable first, visible second
    Bug(
        "a receipt before the list is written",
        "nothing is acknowledged that a crash may take back",
        Edit(
            TAKE,
            RECORD,
            "for each in events:\n    if hasattr(each, 'client'):\n"
            f"        driver.places.enter(each.client, each.digest)\n{RECORD}",
        ),
    ),
    Bug(
        "of submissions that are entered together only the first is recorded",
        "every event is recorded, also those that one commit takes",
        Edit(TAKE, "for each in events]", "for each in events[:1]]"),
    ),
    Bug(
        "a receipt before the submission is written",
        "a submission is in the store before it is acknowledged",
        Edit(
            RECEIPT,
            "try:\n    changes: ",
            "await self._inbox.post(run.round_id, ssa.Submitted(client, name))\ntry:\n    changes: ",
        ),
    ),
    Bug(
        "acts before it records",
        "an event is recorded, then adopted, then acted upon",
        Edit(TAKE, RECORD, "pass"),
        Edit(TAKE, "self._begin_effects(before, events, done)", f"self._begin_effects(before, events, done)\n{RECORD}"),
    ),
    Bug(
        "a list that is closed but not recorded",
        "one roster per round, also after a restart",
        _unrecorded("CloseRound"),
    ),
    Bug(
        "the peer's list is not recorded",
        "what the peer has said is recorded before it is acted upon",
        _unrecorded("PeerRoster"),
    ),
    Bug("a share's nonce is not recorded", "one commitment per round, also after a restart", _unrecorded("Summed")),
    Bug(
        "the peer's commitment is not recorded",
        "a share is revealed only when the peer's commitment is durable",
        _unrecorded("PeerCommitment"),
    ),
    Bug(
        "a toss that is not recorded",
        "a server that restarts tosses the same again",
        Edit("parties.server.round.toss:TossRun.begin", "await store.commit(Record(journal, *recorded))", "pass"),
    ),
    Bug(
        "the peer's half of a toss is not recorded",
        "what the peer has said is recorded before it is acted upon",
        Edit(
            "parties.server.round.toss:TossRun.take",
            "await self._store.commit(Record(_journal(self.number), msgspec.msgpack.encode(event)))",
            "pass",
        ),
    ),
    Bug(
        "the model is settled before its round's number",
        "settling a round is one commit",
        Edit(
            SETTLE,
            SETTLING,
            "early = (change for change in settling[3:] if hasattr(change, 'key'))\n"
            f"await records.store.commit(*early)\n{SETTLING}",
        ),
    ),
    Bug(
        "a round's number is settled before its model",
        "settling a round is one commit",
        Edit(
            SETTLE,
            SETTLING,
            "await records.store.commit(*changes, *settling[:3], *remembered)\nawait records.store.commit(*settling)",
        ),
    ),
    Bug(
        "erases a round before it is settled",
        "what a restart needs is erased only by the commit that makes it needless",
        Edit(
            SETTLE,
            SETTLING,
            "from parties.storage.store import Erase\n"
            f"await records.store.commit(Erase(f'{{run.records.prefix}}/'))\n{SETTLING}",
        ),
    ),
    Bug(
        "a commit returns before it is synced",
        "when a commit returns, it is durable",
        Edit("parties.testing.disk:DiskStore.commit", "self._disk.sync()", "pass"),
    ),
    Bug(
        "a torn entry is taken for a whole one",
        "a store goes back to its last whole entry",
        Edit("parties.testing.disk:_whole_entries", " or zlib.crc32(body) != checksum", ""),
    ),
    # ---- who is counted
    Bug(
        "a receipt for who is not on the list",
        "a receipt is sent only when the submission stands in the round's list",
        Edit(RECEIPT, "if not await places.wait_entered(client):", "if False:"),
    ),
    Bug(
        "counts whom only one server has",
        "the roster is what both servers hold",
        Edit(
            f"{ROUND}:_agree",
            "if theirs.get(client) == ours[client]",
            "if theirs.get(client, ours[client]) == ours[client]",
        ),
    ),
    Bug(
        "counts submissions whose digests differ",
        "the roster is what both servers hold with equal digests",
        Edit(f"{ROUND}:_agree", "if theirs.get(client) == ours[client]", "if client in theirs"),
        alone=False,
    ),
    Bug(
        "no minimum for a roster",
        "nothing is revealed below the minimum",
        Edit(f"{ROUND}:_agree", "if len(roster) < terms.minimum:", "if not roster:"),
    ),
    Bug(
        "no minimum after verification",
        "nothing is revealed below the minimum, also when proofs have failed",
        Edit(f"{ROUND}:_verify", "if len(counted) < terms.minimum:", "if not counted:"),
        alone=False,
    ),
    Bug(
        "counts whose proof fails",
        "who is not proved is not counted",
        Edit(f"{ROUND}:_failed", "if not same(mine[:DIGEST_BYTES], other[:DIGEST_BYTES]):", "if False:"),
        alone=False,
    ),
    Bug(
        "counts whose bound is not proved",
        "who is not proved is not counted",
        Edit(
            f"{ROUND}:_failed",
            "elif terms.bound is not None and not accepts(terms.bound, mine[DIGEST_BYTES:], other[DIGEST_BYTES:]):",
            "elif False:",
        ),
        alone=False,
    ),
    Bug(
        "leaves in the sum who is not counted",
        "the sum is that of the roster",
        Edit("parties.server.round.accumulation:Accumulator._exactly", "if unwanted:", "if False:"),
    ),
    Bug(
        "adds the first of a batch alone",
        "the sum is that of the roster",
        Edit("fsl_async.server.batch:Batch._add", "for prepared in ready]", "for prepared in ready[:1]]"),
    ),
    Bug(
        "adds submissions once more after a restart",
        "a submission is added once",
        Edit(
            "parties.server.round.computation:Computation.begin",
            "self.sum.put(client)",
            "self.sum.put(client)\nself.sum.put(client)",
        ),
    ),
    Bug(
        "takes submissions after the list is sent",
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
    Bug(
        "reveals with its commitment",
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
    Bug(
        "takes a share that was not committed to",
        "a share that does not match its commitment halts",
        Edit(f"{ROUND}:_combine", "if not same(state.peer_commitment, expected):", "if False:"),
        alone=False,
    ),
    Bug(
        "gives up after it has committed",
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
    Bug(
        "says nothing again when the servers have met",
        "each time the servers meet, each says again what the other may lack",
        Edit("parties.server.actor:Actor._take", "self._resend()", "pass"),
    ),
    Bug(
        "takes for known what a restart has lost",
        "a part that was on loan is taken again when its carrier forwards it again",
        Edit(
            "parties.server.peer.forwarding:take_in",
            "if run.requests.wants(key, name) or run.records.awaits(key, name):",
            "if run.requests.wants(key, name):",
        ),
    ),
    Bug(
        "does not wait for what a restart has lost",
        "a server evaluates when it has all that it needs",
        Edit("parties.server.round.run:RoundRun._restore_requests", "self.records.await_part(key, part)", "pass"),
    ),
    Bug(
        "calls an own rule again after a restart",
        "a server stands by what its own rule gave",
        Edit(
            "parties.server.round.conclusion:conclude",
            'if start.config.task.rule == "own" else None',
            "if False else None",
        ),
    ),
    Bug(
        "applies although the outcomes differ",
        "where the own rule gave the servers different outcomes, nothing is applied",
        Edit("parties.server.round.computation:Computation.withdraw", "if self.opened is not None:", "if False:"),
    ),
    Bug(
        "its last words are what came of it",
        "a server repeats the outcome at which it had arrived itself",
        Edit(
            "parties.server.round_sequence:_last_words",
            "Conclusion(past.report.round_id, past.concluded)",
            "Conclusion(past.report.round_id, past.report.digest())",
        ),
    ),
    Bug(
        "does not keep the optimizer's state",
        "the state is in the store, in one commit with the model",
        Edit("parties.server.history:Arrays.keyed", '| keyed("state/", self.state)', ""),
    ),
    Bug(
        "divides by all clients that may come",
        "a mean is over the counted clients",
        Edit("fsl_async.server.rules:_divisor", "return float(clients)", "return float(task.max_clients)"),
    ),
    Bug(
        "one decay stands for the other",
        "the optimizer takes one step in a round",
        Edit(
            "fsl_async.server.rules:_step",
            "second = beta2 * second + (1 - beta2) * (change * change)",
            "second = beta2 * second + (1 - beta1) * (change * change)",
        ),
    ),
    Bug(
        "does not repeat its last words",
        "a server that has settled a round still tells the peer how it ended",
        Edit("parties.server.round_sequence:RoundSequence.resend", "self._link.post(_last_words(past))", "pass"),
    ),
    Bug(
        "does not repeat its half of a toss",
        "each time the servers meet, each says again what the other may lack",
        Edit("parties.server.round_sequence:RoundSequence.resend", "self._toss.resend()", "pass"),
    ),
    Bug(
        "does not repeat who has asked",
        "each time the servers meet, each says again what the other may lack",
        Edit("parties.server.round_sequence:RoundSequence.resend", "self._sample.resend()", "pass"),
    ),
    Bug(
        "who has asked is not recorded",
        "one list of who asked per round, also after a restart",
        Edit(
            "parties.server.round.drawing:SampleRun._adopt",
            "await self._store.commit(Record(_journal(self.number), msgspec.msgpack.encode(event)))",
            "pass",
        ),
    ),
    Bug(
        "each server ranks clients by itself",
        "both servers draw the same clients",
        Edit(
            "parties.server.round.drawing:SampleRun.begin",
            "secret_of(tossed.proof_key)",
            "secret_of(tossed.proof_key + bytes([tossed.half.server]))",
        ),
    ),
    Bug(
        "tells everybody that they are drawn",
        "as many are told that they are drawn as are drawn",
        Edit(
            "parties.server.clients.requests:_opened",
            "Opened(run.config.canonical(), strange, run.start.is_drawn(client))",
            "Opened(run.config.canonical(), strange, True)",
        ),
    ),
    Bug(
        "drops what is on its way when it is sent",
        "a message stays among the effects until an answer proves that the peer has it",
        Edit(
            "fsl_async.protocols.ssa.side_effects:effects",
            "case Committed():\n    return (\n        _send_roster(state.entries, terms),\n"
            "        *_send_proofs(state.proofs, terms),\n",
            "case Committed():\n    return (\n",
        ),
    ),
    Bug(
        "nobody is woken when a submission is in",
        "whoever waits for a round is woken when it changes",
        Edit("parties.server.round.places:ClientPlaces._wake", "self._awaited.pop(client).set()", "pass"),
    ),
    Bug(
        "nobody is woken when a round is settled",
        "whoever waits for a round's end is woken by it",
        Edit("parties.server.round.run:RoundRun._end_waiting", "self.settled.set()", "pass"),
    ),
    Bug(
        "nobody is woken when a round opens",
        "whoever waits for a round is woken when one opens",
        Edit("parties.server.round_sequence:RoundSequence._open", "self._rounds.opened.set()", "pass"),
    ),
    Bug(
        "waits for stragglers for ever",
        "submissions that only the peer holds are waited for no longer than the grace period",
        Edit("parties.server.round.aggregating:Aggregation.perform", "timers.start_grace()", "pass"),
    ),
    Bug(
        "keeps two parts of one request",
        "what the peer forwards is judged before it is stored, so that a restart finds no contradiction",
        Edit(
            "parties.server.round.assembly:RequestAssembly.wants",
            "return wanted and self._coming.setdefault(key, part) == part",
            "return True",
        ),
        alone=False,
    ),
    # ---- clients
    Bug(
        "forgets its draft",
        "a submission's bytes are kept before the first of them is sent",
        Edit(DRAFTED, "await self._state.store_draft(draft, session)", "pass"),
    ),
    Bug(
        "takes a lost receipt for a refusal",
        "a submission that a server may have is not given up before its round's outcome is known",
        Edit(
            "parties.client.submitting:Submitter.deliver",
            "receipt = await self._outcomes.receipt(self._latest(draft), closed)",
            "await self._participation.settle(draft.summary(), Leave(), counted=False); raise",
        ),
    ),
    Bug(
        "believes one server that a round has closed",
        "once a byte of a submission has left, only what both servers have signed says that it counts nowhere",
        Edit(
            "parties.client.outcomes:Outcomes.receipt",
            "outcome = await self.learn()",
            "await self._participation.settle(draft.summary(), Leave(), counted=False); raise closed",
        ),
        alone=False,
    ),
    Bug(
        "submits again what was counted",
        "who calls again after an interruption is told that the submission was counted",
        Edit("parties.client.outcomes:Outcomes.refuse_counted", "if outcome.counted:", "if False:"),
    ),
    Bug(
        "erases a submission at its first receipt",
        "a submission's bytes are kept until both servers have it",
        Edit(
            "parties.client.state:ClientState.store_receipt",
            'await self._store.commit(_put("submission", StoredPending(draft.stored())))',
            'await self._store.commit(_put("submission", StoredPending(draft.stored())), Erase("bulk/"))',
        ),
    ),
    Bug(
        "keeps trees that were not counted",
        "a session stands only once the submission that brought its trees was counted",
        Edit(
            "parties.client.session:settled",
            "epochs.Counted(epoch) if counted else epochs.Dropped(epoch)",
            "epochs.Counted(epoch)",
        ),
    ),
    Bug(
        "loses trees that were counted",
        "trees of submissions that were counted stay",
        Edit("parties.server.sessions:Sessions.settle", "await self._keep_trees(epoch, protocol, brought)", "pass"),
    ),
    Bug(
        "believes one server's account",
        "an outcome counts only if both servers tell it",
        Edit(
            "parties.client.outcomes:learn_outcome", "if not _same_ending(statements[0], statements[1]):", "if False:"
        ),
        alone=False,
    ),
)
