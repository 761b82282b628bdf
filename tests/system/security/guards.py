"""Every check, taken out one at a time: `python -m tests.system.security.guards` prints which tests notice.

A guard is one line of a file and what it becomes without its check. The tree is copied, the line changed in the
copy, and the guard's tests run there; the copy is put right again before the next. A guard that no test misses is a
failure of this command, and so is a test that fails with all checks in place.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from tests import ROOT

COPIED = ("fsl_async", "transport", "parties", "tests", "docs", "examples", "README.md", "pyproject.toml")

LIMIT = "--timeout=200"
"""Seconds for one test: without a check it may wait for ever, and that tells as much as a failure."""

ADMISSION = "tests/parties/server/test_admission.py"
ALONE = "tests/parties/server/test_protocols_alone.py"
BACKUP = "tests/parties/deployment/test_backup.py"
BOUND_ATTACKS = "tests/fsl_async/bounds/test_attacks.py"
BOUND_ROUNDS = "tests/system/security/test_bounds.py"
BOUND_TERMS = "tests/fsl_async/bounds/test_terms.py"
BOUND_WEIGHTS = "tests/fsl_async/bounds/test_weights.py"
BYZANTINE = "tests/system/security/test_byzantine_server.py"
CODEC = "tests/fsl_async/wire/test_codec.py"
REFUSALS = "tests/test_wire_refusals.py"
CONNECTION = "tests/parties/server/clients/test_connection.py"
CONTRIBUTORS = "tests/system/security/test_contributors.py"
COUNTING = "tests/fsl_async/protocols/test_transcripts_counting.py"
COUNTS = "tests/fsl_async/server/test_contributors.py"
DAMAGED_FILES = "tests/parties/storage/test_damaged_files.py"
DASK_APART = "tests/parties/cluster/test_dask_apart.py"
DEPOSITS = "tests/parties/server/clients/test_deposits.py"
DRAWING = "tests/parties/server/round/test_sample.py"
EQUIVOCATION = "tests/system/security/test_equivocation.py"
HELD_PARTS = "tests/parties/server/peer/test_held_parts.py"
LEAKAGE = "tests/system/security/test_leakage.py"
LEDGER_OF_CLIENT = "tests/parties/client/test_ledger.py"
LINK = "tests/parties/server/peer/test_link.py"
MALFORMED = "tests/system/security/test_malformed_trees.py"
MEETING = "tests/parties/server/peer/test_reconciliation.py"
MEMORY_BUDGET = "tests/parties/server/clients/test_memory_budget.py"
MERKLE = "tests/fsl_async/test_merkle.py"
NOISY_ROUNDS = "tests/parties/server/test_noise.py"
PLAIN = "tests/fsl_async/test_plain_union_rounds.py"
PROTOCOLS_TRANSCRIPTS = "tests/fsl_async/protocols/test_transcripts.py"
PUT_BACK = "tests/system/security/test_put_back.py"
RECORDS = "tests/transport/test_records.py"
REGISTRATION = "tests/parties/server/test_registration.py"
REPEATED = "tests/system/security/test_repeated_rounds.py"
REPETITION = "tests/system/security/test_repetition.py"
ROOTS = "tests/system/security/test_roots.py"
RULES_TESTED = "tests/fsl_async/server/test_rules.py"
SEVERAL = "tests/parties/server/test_several_tasks.py"
SPOILT = "tests/system/security/test_spoilt_answers.py"
STORED = "tests/system/security/test_stored_words.py"
SUM_LIMITS = "tests/fsl_async/server/test_sum_limits.py"
TRANSCRIPTS = "tests/fsl_async/protocols/test_transcripts_round.py"


@dataclass(frozen=True)
class Guard:
    """A check in one line.

    Attributes:
        name: what it guards.
        line: the part of the line that changes; it must be there exactly once.
        tests: where it should be missed: a file, or several.
        without: what the line becomes.
    """

    name: str
    line: str
    tests: str | tuple[str, ...]
    without: str = "if False:"

    @property
    def files(self) -> tuple[str, ...]:
        """Of the tests."""
        return (self.tests,) if isinstance(self.tests, str) else self.tests


GUARDS: dict[str, list[Guard]] = {
    "fsl_async/wire/codec.py": [
        Guard("a message has one encoding", "if came == expected:", CODEC, "if True:"),
        Guard("fields have their sizes, where those depend", "if not holds(getattr(message, name)):", CODEC),
        Guard("no bulk follows a message that has none", "if used < total and not message.carries_bulk:", CODEC),
    ],
    "transport/records.py": [
        Guard("each record of a message but its last is full", "if record != size + 1 + TAG_SIZE:", RECORDS),
        Guard("a message's first record has what its total says", "if size != expected:", RECORDS),
        Guard("nothing but DATA stands in a message", "if kind != RecordType.DATA:", RECORDS),
        Guard("a message has a longest length", "if total > LONGEST_MESSAGE:", RECORDS),
    ],
    "parties/identity/handshake.py": [
        Guard("a voucher is whole or absent", "if len(credentials.voucher) not in (0, KEY_BYTES):", REFUSALS),
        Guard("credentials have one encoding", "if credentials.encode() != payload:", ADMISSION),
        Guard(
            "marks of tasks say nothing to those who do not have them",
            "return digest(Domain.SERVED, task, key=salt)[:MARK_BYTES]",
            SEVERAL,
            "return task[:MARK_BYTES]",
        ),
    ],
    "parties/server/admission.py": [
        Guard(
            "a listed client has signed its credentials", "if not credentials.is_signed_for(client.channel):", ADMISSION
        ),
        Guard("a key enrols once", "if self._enrolled.by_channel(key) is not None:", ADMISSION),
    ],
    "parties/server/clients/connection.py": [
        Guard(
            "who gives no sign of life hears that it has to",
            'await self._say_why("busy", f"{error}: who waits sends a PING every {HEARTBEAT:g} s")',
            CONNECTION,
            "pass",
        ),
        Guard(
            "a client that means another task hears which is served, and nothing else",
            "if not (self._same_task or isinstance(message, AskTask)):",
            REGISTRATION,
        ),
        Guard(
            "who breaks the rules hears which before the connection ends",
            'await self._say_why("malformed", error)',
            CONNECTION,
            "pass",
        ),
        Guard(
            "a client that is turned away hears why",
            'await replies.say_why(channel, replies.farewell("malformed", client, why))',
            REGISTRATION,
            "pass",
        ),
    ],
    "parties/server/server.py": [
        Guard("a client comes in a client's role", "if role != Role.CLIENT:", REGISTRATION),
        Guard(
            "servers run one task",
            "if payload != self.setup.task.digest():\n                return Refusal",
            BYZANTINE,
            "if False:\n                return Refusal",
        ),
    ],
    "parties/server/clients/requests.py": [
        Guard(
            "a round takes what belongs to its protocol", "if isinstance(message, FOREIGN[run.config.protocol]):", ALONE
        ),
        Guard(
            "a request that breaks off counts",
            "run.quota.count(client, Counted.UNFINISHED)",
            "tests/parties/server/round/test_quota.py",
            "pass",
        ),
    ],
    "parties/server/peer/forwarding.py": [
        Guard(
            "a carrier forwards what belongs to the round's protocol",
            "if message.purpose not in PURPOSES[config.protocol]:",
            ALONE,
        ),
        Guard("a carrier forwards for its own clients", "if config.carrier(message.client) == run.server:", BYZANTINE),
        Guard(
            "of what is forwarded for a request one part is stored",
            "if run.requests.wants(key, name) or run.records.awaits(key, name):",
            STORED,
            "if not run.requests.has_public(key, name):",
        ),
        Guard(
            "parts are stored for known clients",
            "if known and run.requests.has_place(client):",
            STORED,
            "if run.requests.has_place(client):",
        ),
        Guard("a forwarded part has its size", "if size not in sizes:", BYZANTINE),
        Guard("the peer forwards for nobody who was not drawn", "if not run.start.is_drawn(message.client):", DRAWING),
    ],
    "parties/server/round/aggregating.py": [
        Guard(
            "a round is closed by what both servers have",
            "return held + min(len(state.entries) - held, self._peer_holds) >= self._start.enough",
            "tests/parties/server/test_closing.py",
            "return True",
        ),
        Guard(
            "no share comes early",
            "case messages.Share() if isinstance(self.state, ssa.BEFORE_REVEALED):",
            BYZANTINE,
            "case messages.Share() if False:",
        ),
        Guard(
            "pieces are sent only once both have committed",
            "if not isinstance(state, ssa.Revealed | ssa.Combined | ssa.Concluded):",
            BYZANTINE,
        ),
        Guard(
            "a share is judged before it is stored",
            "if self.after(listed.said) != self.state:  # judged before any piece is asked for",
            STORED,
            "if True:",
        ),
        Guard(
            "counts are judged before they are stored",
            "if self.after(said) != self.state:  # judged before they are stored",
            STORED,
            "if True:",
        ),
        Guard(
            "the peer lists nobody who was not drawn",
            "if others := sorted(client for client in entries if not self._start.is_drawn(client)):",
            DRAWING,
            "if others := []:",
        ),
        Guard(
            "a server charges a round whose share it sends",
            "changes += self._services.ledger.changes(config.number, config.round_id())",
            NOISY_ROUNDS,
            "pass",
        ),
    ],
    "fsl_async/protocols/psr/transitions.py": [
        Guard("a round of retrievals has one outcome", "if event.outcome != terms.outcome:", ALONE),
        Guard("who aborts retrievals says why", "if not event.explanation:", ALONE),
    ],
    "fsl_async/config.py": [
        Guard(
            "a round runs a protocol of its task",
            "if self.protocol not in self.task.round_protocols:",
            "tests/fsl_async/test_config.py",
        ),
        Guard("a conversion key serves one epoch", 'self.epoch.to_bytes(8, "little"),', LEAKAGE, ""),
        Guard("a conversion key hides one payload", "            salt,\n", (REPETITION, PUT_BACK), ""),
    ],
    "fsl_async/bounds/masking.py": [
        Guard(
            "bound: no point shows values",
            "if point > 2 * terms.wires.calls:",
            "tests/fsl_async/bounds/test_tiny_fields.py",
            "if True:",
        )
    ],
    "fsl_async/bounds/field.py": [
        Guard("bound: an element has one encoding", "if element >= self.prime:", BOUND_ATTACKS)
    ],
    "fsl_async/bounds/server.py": [
        Guard("bound: a private part has its size", "if len(private) != terms.private_bytes:", BOUND_ATTACKS),
        Guard(
            "bound: links are compared",
            "return same(ours[:split], theirs[:split]) and holds(",
            BOUND_ATTACKS,
            "return holds(",
        ),
        Guard(
            "bound: a weight is the servers' own word of it",
            "projected.append(_word_of_weight(terms, elements))",
            BOUND_WEIGHTS,
            "pass",
        ),
    ],
    "fsl_async/bounds/sum_of_squares.py": [
        Guard(
            "bound: squares sum up to the limit", "return list(totals) == right and dot(", BOUND_ATTACKS, "return dot("
        ),
        Guard(
            "bound: what is said of a weight sums up to its own limit",
            "return list(totals) == right and dot(",
            BOUND_WEIGHTS,
            "return list(totals)[:1] == right[:1] and dot(",
        ),
        Guard(
            "bound: the sum is of the wires' squares",
            " and dot(wires.field, wire_values, wire_values) == at_point",
            BOUND_ATTACKS,
            "",
        ),
    ],
    "fsl_async/bounds/client.py": [
        Guard("bound: a client sends nothing that exceeds it", "if squares > terms.norm**2:", BOUND_ATTACKS)
    ],
    "fsl_async/bounds/of_task.py": [
        Guard(
            "bound: honest clients are counted",
            "if terms.exact and self.nonzero",
            BOUND_TERMS,
            "if False and self.nonzero",
        ),
        Guard(
            "bound: projections are short in the ring", "if not terms.exact and ROOM", BOUND_TERMS, "if False and ROOM"
        ),
        Guard("bound: nothing wraps in the field", "if terms.largest_sum >= terms.field.prime:", BOUND_TERMS),
        Guard(
            "bound: no sum of bounded updates wraps",
            "if self.max_clients**2 * self.payloads * terms.guaranteed_square >= 4 ** (self.ring_bits - 1):",
            BOUND_TERMS,
        ),
    ],
    "fsl_async/protocols/ssa/transitions.py": [
        Guard(
            "bound in rounds: what both servers say is judged",
            "elif terms.bound is not None and not accepts(terms.bound, mine[DIGEST_BYTES:], other[DIGEST_BYTES:]):",
            BOUND_ROUNDS,
            "elif False:",
        ),
        Guard(
            "bound in rounds: an answer has its form",
            "check_answer(terms.bound, other[DIGEST_BYTES:], terms.peer)",
            BOUND_ROUNDS,
            "pass",
        ),
        Guard("proof digests are compared", "if not same(mine[:DIGEST_BYTES], other[:DIGEST_BYTES]):", EQUIVOCATION),
        Guard(
            "a roster has equal digests",
            "if theirs.get(client) == ours[client]}",
            (EQUIVOCATION, TRANSCRIPTS),
            "if client in theirs}",
        ),
        Guard("a roster has enough clients", "if len(roster) < terms.minimum:", BYZANTINE),
        Guard("enough clients are left after verification", "if len(counted) < terms.minimum:", TRANSCRIPTS),
        Guard("proofs are of the roster", "if theirs.keys() != state.roster.keys():", BYZANTINE),
        Guard("a share matches its commitment", "if not same(state.peer_commitment, expected):", BYZANTINE),
        Guard("who gives up says why", "if not event.explanation:", (BYZANTINE, TRANSCRIPTS)),
        Guard("outcomes agree", "if state.outcome != event.outcome:", BYZANTINE),
        Guard("a conclusion is a digest", "if len(event.outcome) != DIGEST_BYTES:", TRANSCRIPTS),
        Guard("an own rule's outcomes alone may differ", "if not terms.own_rule:", TRANSCRIPTS),
        Guard("counts are said once, also before ours", "if recall(state.heard, event, terms.peer):", COUNTING),
        Guard(
            "where contributors are counted, nothing is summed before",
            "if isinstance(state, Verified) and terms.contributors:",
            COUNTING,
        ),
    ],
    "parties/server/clients/deposits.py": [
        Guard(
            "bound in rounds: a private part has its form",
            "check_private(terms, private, wanted.key.client)",
            BOUND_ROUNDS,
            "pass",
        ),
        Guard(
            "bound in rounds: a private part is the one that was committed to",
            "if not same(private_digest(private, wanted.seed), wanted.bound_digest):",
            BOUND_ROUNDS,
        ),
        Guard("padding is zero", "if padded is None:", DEPOSITS, "if True:"),
        Guard(
            "a seed is the committed one",
            "or not same(expected, message.commitments[server]):",
            REFUSALS,
            "or False:",
        ),
        Guard(
            "a dense share is the announced one",
            "if not same(dense_digest(dense, wanted.seed), deposit.dense):",
            (REFUSALS, DEPOSITS),
        ),
        Guard(
            "a hint's part is the one that it announces",
            "if same(wanted.announced, deposit.part):",
            DEPOSITS,
            "if True:",
        ),
        Guard(
            "a submission says the digest of a bound's proof exactly where the round has a bound",
            "if len(message.bound_digest) != size:",
            REFUSALS,
        ),
    ],
    "parties/client/submission.py": [
        Guard(
            "bound in rounds: every proof has a salt of its own",
            "fresh = randomness(SALT_BYTES) if",
            PUT_BACK,
            "fresh = bytes(SALT_BYTES) if",
        )
    ],
    "fsl_async/derivation.py": [
        Guard(
            "κ is bound to the seeds' commitments",
            "parts = (config.round_id(), client.encode(), tree, *commitments)",
            MALFORMED,
            "parts = (config.round_id(), client.encode(), tree)",
        ),
        Guard(
            "κ is bound to the trees",
            "parts = (config.round_id(), client.encode(), tree, *commitments)",
            MALFORMED,
            "parts = (config.round_id(), client.encode(), *commitments)",
        ),
        Guard(
            "κ is bound to the client",
            "parts = (config.round_id(), client.encode(), tree, *commitments)",
            MALFORMED,
            "parts = (config.round_id(), tree, *commitments)",
        ),
        Guard(
            "seed commitments are bound to the round",
            "msk, round_id, client.encode(), bytes([server]))",
            MALFORMED,
            "msk, client.encode(), bytes([server]))",
        ),
        Guard(
            "a submission covers the proof of its bound",
            "return digest(Domain.SUBMISSION, bind, bound)",
            BOUND_ROUNDS,
            "return digest(Domain.SUBMISSION, bind)",
        ),
        Guard(
            "a public part covers the digest of the dense share",
            'pieces.items() if kind != "tree"))',
            "tests/fsl_async/client/test_planting.py",
            'pieces.items() if kind not in ("tree", "dense")))',
        ),
        Guard(
            "a submission covers both seeds",
            "return digest(Domain.BINDING, round_id, identity, public, tree, *commitments)",
            EQUIVOCATION,
            "return digest(Domain.BINDING, round_id, identity, public, tree)",
        ),
        Guard(
            "a dense mask serves one epoch",
            'Domain.DENSE_MASK, epoch.to_bytes(8, "little"), salt, key=msk',
            LEAKAGE,
            "Domain.DENSE_MASK, salt, key=msk",
        ),
    ],
    "fsl_async/protocols/assembly.py": [
        Guard("both halves of a request agree", "if same(announced, received) else", EQUIVOCATION, "if True else"),
        Guard(
            "a mismatch said again is harmless",
            "return event.public_digest == (state.announced if isinstance(event, Direct) else state.received)",
            PROTOCOLS_TRANSCRIPTS,
            "return isinstance(event, Direct) and event.public_digest == state.announced",
        ),
    ],
    "parties/server/round/places.py": [
        Guard(
            "one submission per client",
            "if known != submission:",
            EQUIVOCATION,
        )
    ],
    "parties/server/rounds.py": [
        Guard(
            "a request is for the open round",
            "and run.round_id == round_id and run.driver.serves(client):",
            EQUIVOCATION,
            "and run.driver.serves(client):",
        ),
        Guard(
            "who is not drawn is refused",
            "and run.round_id == round_id and not run.start.is_drawn(client):",
            DRAWING,
            "and False:",
        ),
    ],
    "fsl_async/protocols/epochs.py": [
        Guard("an epoch has one hint", "if event.hint != state.hint:", EQUIVOCATION),
        Guard("epochs rise", "if event.epoch < state.epoch:", (PROTOCOLS_TRANSCRIPTS, EQUIVOCATION)),
    ],
    "fsl_async/client/upload.py": [
        Guard(
            "a dense mask hides one payload",
            "mask = dense_mask(config.shape, msk[1 - carrier], config.epoch, salt)",
            REPETITION,
            'mask = dense_mask(config.shape, msk[1 - carrier], config.epoch, b"")',
        ),
        Guard("a salt is nobody's to guess", 'key = b"".join(client_trees.seeds.msk)', REPETITION, 'key = b""'),
        Guard(
            "a mask hides one payload of rows that move plainly",
            "[*payloads.values(), elements], fresh)",
            REPETITION,
            "[*payloads.values(), _dense(config.shape, dense, {})], fresh)",
        ),
        Guard(
            "rows that move plainly may be updated only where they were retrieved",
            "            _places_among(client_trees.rows[index], rows, block.name, config.task)\n",
            PLAIN,
            "",
        ),
        Guard(
            "no row of a wrong answer is handed out",
            "    if not all(checks):",
            "tests/fsl_async/client/test_wrong_answers.py",
            "    if False:",
        ),
    ],
    "parties/client/submitting.py": [
        Guard(
            "rows outside a union are left out in silence",
            "index: (self._unions.named(config, index, rows[within[index]]), values[within[index]])",
            "tests/system/security/test_absence.py",
            "index: (self._unions.named(config, index, rows), values)",
        ),
        Guard(
            "one server's word does not end a submission",
            "receipt = await self._outcomes.receipt(self._latest(draft), closed)",
            REPEATED,
            "raise",
        ),
    ],
    "fsl_async/protocols/psu/client.py": [
        Guard(
            "unions are downloaded whole",
            "tuple(Fetch(block) for block in union if block.name not in here)",
            LEAKAGE,
            "()",
        ),
        Guard(
            "a union is the announced one", "or not same(event.digest, described[event.block])", BYZANTINE, "or False"
        ),
    ],
    "parties/client/downloads.py": [
        Guard(
            "all that moves plainly is downloaded",
            "zip(config.shape.plain_blocks(), config.plain, strict=True)",
            PLAIN,
            "zip((item for item in config.shape.plain_blocks() if item[0] in wanted), config.plain)",
        ),
        Guard(
            "a block that is downloaded is the announced one",
            "if not same(await self._lane.run(described) if whole else described(), ",
            (BYZANTINE, "tests/parties/client/test_whole_blocks.py"),
            "if False and not same(await self._lane.run(described) if whole else described(), ",
        ),
    ],
    "fsl_async/bin_count.py": [
        Guard(
            "who moves rows plainly in a verified task can change no more of them",
            'if task.verified or task.selection == "fixed":',
            ("tests/fsl_async/test_union.py", PLAIN),
            'if task.selection == "fixed":',
        )
    ],
    "fsl_async/protocols/machine.py": [
        Guard("nobody says two things in one place", "if before is not None and before != event.content():", BYZANTINE),
        Guard("what is ahead of its turn is said once", "if type(other) is type(event) and other != event:", STORED),
    ],
    "fsl_async/protocols/ssa/side_effects.py": [
        Guard(
            "a commitment names the roster",
            "bytes([server]), roster, *of_counts, share, nonce)",
            TRANSCRIPTS,
            "bytes([server]), *of_counts, share, nonce)",
        ),
        Guard(
            "a commitment names the server",
            "terms.round_id, bytes([server]), roster,",
            TRANSCRIPTS,
            "terms.round_id, roster,",
        ),
        Guard(
            "a commitment names the counts",
            "bytes([server]), roster, *of_counts, share, nonce)",
            COUNTING,
            "bytes([server]), roster, share, nonce)",
        ),
    ],
    "parties/server/round/shares.py": [
        Guard("a share has its size", "if len(data) != DIGEST_BYTES * len(spans):", BYZANTINE),
        Guard("pieces come in order", "if place != due:", BYZANTINE),
        Guard("a piece has its size", "if len(piece) != expected:", BYZANTINE),
        Guard("a piece is the listed one", "if name != listed.pieces[place]:", BYZANTINE),
        Guard(
            "a piece that is read back is compared with its digest",
            "if not same(await self._lane.run(partial(piece_digest, piece)), name):",
            "tests/parties/server/round/test_shares.py",
        ),
    ],
    "parties/server/round/outbox.py": [Guard("pieces are asked for once", "if self._pieces_asked:", BYZANTINE)],
    "parties/server/round/reading.py": [
        Guard(
            "bulk that is read back is compared with its digest",
            "if not await self._lane.run_over(len(content), partial(is_right, content)):",
            "tests/parties/server/round/test_reading_back.py",
        )
    ],
    "fsl_async/server/rules.py": [
        Guard(
            "nothing that a function raises ends the server",
            "    except BaseException as error:  # whatever else it is",
            RULES_TESTED,
            "    except RuntimeError as error:  # whatever else it is",
        ),
        Guard("weights do not sum to less than 0", "if weight < 0:", RULES_TESTED),
        Guard(
            "what a function says when it fails is not told to clients",
            'raise OwnRuleError(f"{task.apply} raised {type(error).__name__}") from error',
            RULES_TESTED,
            'raise OwnRuleError(f"{task.apply} raised {error}") from error',
        ),
        Guard(
            "where weights are proved, a mean divides by no less than one client's largest",
            "return max(weight, task.largest_weight or 0.0)",
            (RULES_TESTED, BOUND_ROUNDS),
            "return weight",
        ),
    ],
    "parties/deployment/server.py": [
        Guard(
            "a function is run only if the server's own file names it",
            "if file.apply != task.apply:",
            "tests/parties/deployment/test_round_files.py",
        )
    ],
    "parties/client/arguments.py": [
        Guard(
            "a client's weight is at most the largest",
            "if task.largest_weight is not None and units > task.largest_weight_integer:",
            BOUND_ROUNDS,
        ),
        Guard("a client's weight is at least 0", "if units < 0:", "tests/parties/server/test_server_rules.py"),
    ],
    "fsl_async/protocols/toss.py": [
        Guard("models agree", "if event.model != half.model:", BYZANTINE),
        Guard(
            "a seed tossed is the committed one",
            "if not same(expected, _commit(1 - half.server, half.number, event.seed, event.nonce)):",
            BYZANTINE,
        ),
    ],
    "parties/server/round_sequence.py": [
        Guard("a toss is for the present round", "if message.number > number:", BYZANTINE),
        Guard(
            "a round is one that both know",
            "if not self._rounds.is_past(round_id):\n            raise PeerViolationError(",
            BYZANTINE,
            "if False:\n            raise PeerViolationError(",
        ),
        Guard(
            "a store that was made from a copy is charged for what it may have forgotten",
            "await self._records.ledger.charge_forgotten(self.number)",
            "tests/parties/server/test_spent_stores.py",
            "pass",
        ),
        Guard(
            "a round of which nobody knows what was said is given up",
            "if run.accepts(GaveUp) and await self._gives_up():",
            BACKUP,
        ),
    ],
    "parties/server/round/assembly.py": [
        Guard(
            "the peer forwards for so many clients that have not come",
            "if client not in self._present and len(self._expected) < self._places:",
            STORED,
            "if client not in self._present:",
        )
    ],
    "fsl_async/server/sum_limits.py": [
        Guard(
            "a sum is what its clients can have contributed",
            "if self._beyond is None and weights.size and not -most",
            "tests/system/security/test_refused_sums.py",
            "if False and self._beyond is None and not -most",
        ),
        Guard(
            "a sum is no longer than what its clients have proved, and what is beyond it names the other server",
            "if self._terms is not None and self._squares > largest_square(task, self._terms, clients):",
            SUM_LIMITS,
        ),
        Guard(
            "a sum of weights is one that clients have proved, and what is none names the other server",
            "if task.largest_weight and not -reach <= self._weight",
            SUM_LIMITS,
            "if False and not -reach <= self._weight",
        ),
    ],
    "fsl_async/options/protecting.py": [
        Guard(
            "clients that lie do not reach the least contributors by themselves",
            "if cast(int, task.min_contributors) < least:",
            "tests/fsl_async/test_task.py",
        ),
        Guard(
            "a delta above one in the clients is refused",
            "privacy.delta * task.max_clients > 1:",
            "tests/fsl_async/privacy/test_utility.py",
            "False:",
        ),
    ],
    "parties/server/task_router.py": [
        Guard(
            "who is in no task hears of none",
            "in self._servers.items() if server.enrolment.by_channel(key)}",
            SEVERAL,
            "in self._servers.items()}",
        ),
        Guard(
            "a connection is its task's, whoever else knows the key",
            "return self._servers[task]",
            SEVERAL,
            "return next(iter(self._servers.values()))",
        ),
    ],
    "transport/noise.py": [
        Guard(
            "a static key has one form",
            'if not is_public_key(self._remote["s"]):',
            "tests/transport/test_one_form_of_a_key.py",
        )
    ],
    "fsl_async/wire/peer_lists.py": [
        Guard("names on a roster name clients", "if not is_client_name(client):", STORED),
        Guard(
            "marks of held parts are whole, and have a limit",
            "if len(content) % MARK_BYTES or len(content) > most:",
            HELD_PARTS,
        ),
    ],
    "parties/server/round/records.py": [
        Guard("counts have the size that the task implies", "if len(counts) != expected:", (STORED, CONTRIBUTORS))
    ],
    "parties/server/round/computation.py": [
        Guard(
            "counts are ones that clients can have",
            "if effect.counts and self._start.config.task.privacy is None:",
            CONTRIBUTORS,
        ),
        Guard("a server adds noise to its share", "if not sigma:", NOISY_ROUNDS, "if True:"),
        Guard(
            "no two lists of submissions have the same noise",
            "self._config.round_id(), roster_digest(counted), use)",
            NOISY_ROUNDS,
            'self._config.round_id(), b"", use)',
        ),
        Guard(
            "a share that is formed again has the same noise",
            "noise_key(self._identity.noise_secret,",
            NOISY_ROUNDS,
            "noise_key(__import__('os').urandom(32),",
        ),
        Guard(
            "a row's noise does not depend on which rows are opened",
            "if rows is None else rows[span.start : span.stop]",
            NOISY_ROUNDS,
            "",
        ),
    ],
    "fsl_async/server/aggregation.py": [
        Guard("every tree counts once", "totals.counts(self._server) if totals and self._counts else {}", COUNTS, "{}")
    ],
    "fsl_async/server/contributors.py": [
        Guard(
            "rows with too few contributors are not opened",
            "np.flatnonzero(counts >= least)",
            (COUNTS, CONTRIBUTORS),
            "np.flatnonzero(counts >= 0)",
        )
    ],
    "fsl_async/client/planting.py": [
        Guard(
            "a dummy counts on no row",
            "np.where(item >= 0, position, forest.leaves - 1)",
            COUNTS,
            "np.where(item >= 0, position, 0)",
        )
    ],
    "fsl_async/protocols/entry.py": [
        Guard("servers announce one round", "if difference is not None:", BYZANTINE),
        Guard("servers agree who is drawn", "if state.drawn != event.drawn:", DRAWING),
    ],
    "parties/client/entering.py": [
        Guard("nobody is left out of a round for everybody", "if not opened.drawn and config.sample is None:", DRAWING),
        Guard(
            "a round has the pinned keys",
            "if config.servers != tuple(identity.keys for identity in self._setup.servers):",
            BYZANTINE,
        ),
        Guard(
            "trees of a session stand in the bins that they were planted in",
            "if any(bins and bins != planted for bins, planted in zip(config.bins, begun.bins, strict=True)):",
            "tests/parties/client/test_entering.py",
        ),
    ],
    "parties/statement.py": [
        Guard("a statement has one encoding", "if statement.canonical() != data:", REFUSALS),
        Guard(
            "whoever is counted is shown to be on the list",
            "if self.seat is not None and not is_seated(self.root, self.participants, self.client, self.seat):",
            ROOTS,
        ),
        Guard(
            "a statement is for its client", "if self.client != client:", "tests/fsl_async/wire/test_hostile_lists.py"
        ),
    ],
    "parties/client/abstaining.py": [
        Guard(
            "a client whose training fails submits zeros",
            "if _is_elsewhere(error) or not await abstain():",
            "tests/system/security/test_taking_part.py",
            "if True:",
        )
    ],
    "parties/client/actor.py": [
        Guard(
            "values in doubt are not sent again",
            "if doubt and not again and not is_nothing(sparse, dense):",
            REPEATED,
        )
    ],
    "parties/client/outcomes.py": [
        Guard(
            "counted is said of the submission that was asked about",
            'if accounts[0].digest not in (b"", last.digest):',
            "tests/system/security/test_other_submissions.py",
        ),
        Guard(
            "a receipt is signed",
            "if not verify(setup.servers[server].statement, receipt.signature,",
            BYZANTINE,
            "if False and not verify(setup.servers[server].statement, receipt.signature,",
        ),
        Guard(
            "an outcome is signed",
            "if not verify(key, finished.message.signature,",
            BYZANTINE,
            "if False and not verify(key, finished.message.signature,",
        ),
        Guard("outcomes told are equal", "if not _same_ending(statements[0], statements[1]):", (BYZANTINE, REPEATED)),
        Guard("one server's account decides nothing", "if len(accounts) < 2:", REPEATED, "if not accounts:"),
        Guard("an error says that a submission has left", "error.in_doubt = config.number", REPEATED, "pass"),
        Guard(
            "that a pending submission was counted is told",
            "raise AlreadyCountedError(self.receipt_of(draft), outcome)",
            REPEATED,
            "pass",
        ),
        Guard(
            "a client submits nothing beyond its budget",
            "spent.rounds >= task.privacy.rounds",
            LEDGER_OF_CLIENT,
            "False",
        ),
        Guard(
            "only what both servers have signed not to be opened is given back",
            "return not outcome.counted and not outcome.opened and not counts_were_opened",
            LEDGER_OF_CLIENT,
            "return not outcome.counted",
        ),
    ],
    "fsl_async/merkle.py": [
        Guard(
            "a leaf stands for one submission",
            "return digest(Domain.ROSTER_LEAF, salt, client.encode(), submission)",
            (ROOTS, MERKLE),
            "return digest(Domain.ROSTER_LEAF, salt, client.encode())",
        ),
        Guard(
            "a path is exactly as long as the list implies",
            "return not beside and same(root, _root(count, node))",
            (ROOTS, MERKLE),
            "return same(root, _root(count, node))",
        ),
        Guard(
            "a root names how many there are",
            'return digest(Domain.ROSTER_ROOT, count.to_bytes(8, "little"), top)',
            MERKLE,
            "return digest(Domain.ROSTER_ROOT, top)",
        ),
        Guard(
            "leaves are blinded",
            "return derive_key(Domain.ROSTER_SALT, blind, client.encode())",
            MERKLE,
            "return derive_key(Domain.ROSTER_SALT, client.encode())",
        ),
    ],
    "parties/client/requests.py": [
        Guard(
            "a server's words are printed and not obeyed",
            "explanation = printable(message.explanation)",
            "tests/system/security/test_words_of_servers.py",
            "explanation = message.explanation",
        )
    ],
    "parties/commands/client_options.py": [
        Guard(
            "a command whose time is over says that a submission has left",
            "undecided = client.undecided",
            "tests/parties/commands/test_killed_commands.py",
            "undecided = client.pending",
        )
    ],
    "parties/commands/copies.py": [
        Guard("without a mark nothing is restored unless somebody knows", 'if has_run != "no":', BACKUP)
    ],
    "parties/deployment/backup.py": [
        Guard("no older copy is restored", "if last.transactions > then.transactions:", BACKUP),
        Guard(
            "a restored server gives up what its copy had begun",
            "gives_up=begun and not newest",
            BACKUP,
            "gives_up=False",
        ),
        Guard("no copy of before a new beginning is restored", "if last.identity != then.identity:", BACKUP),
    ],
    "parties/server/clients/memory_budget.py": [
        Guard("room is lent only where all that have begun can end", "if missing > free:", MEMORY_BUDGET),
        Guard("who is slowest makes room", "slowest.scope.cancel()", MEMORY_BUDGET, "pass"),
        Guard(
            "who was nearly there and does not end makes room",
            "return left if seconds < self.spared else inf",
            MEMORY_BUDGET,
            "return left",
        ),
    ],
    "transport/channel.py": [
        Guard(
            "a silent peer is taken for lost",
            "elif trio.current_time() - heard_at >= SILENCE:",
            "tests/parties/server/clients/test_silence.py",
            "elif False:",
        )
    ],
    "fsl_async/privacy/noise.py": [
        Guard(
            "every element gets noise of its own",
            "kernels.discrete_gaussian(key, int(chunks[start]), sigma,",
            "tests/fsl_async/privacy/test_noise.py",
            "kernels.discrete_gaussian(key, 0, sigma,",
        )
    ],
    "parties/server/ledger.py": [
        Guard(
            "no round is opened beyond the budget",
            "if privacy is None or self.rounds < privacy.rounds:",
            NOISY_ROUNDS,
            "if True:",
        )
    ],
    "parties/client/state.py": [
        Guard(
            "a client charges a round before its first byte leaves",
            "            *_charge(draft.config),",
            LEDGER_OF_CLIENT,
            "",
        )
    ],
    "parties/server/history.py": [
        Guard(
            "a round that a copy had begun is given up however often it was restored",
            "return any(restore.gives_up and restore.settled == settled for restore in await self._restores())",
            BACKUP,
            "return any(restore.gives_up and restore.settled == settled for restore in (await self._restores())[-1:])",
        )
    ],
    "parties/storage/sqlite_connections.py": [
        Guard("what is read back is what was written", "if _digest(name, data) != written:", DAMAGED_FILES)
    ],
    "parties/storage/sqlite_file.py": [
        Guard("names are found as they were written", '        if found != "ok":', DAMAGED_FILES, "        if False:"),
        Guard("a copy is no store", "if application == COPY:", BACKUP),
    ],
    "parties/storage/mark.py": [
        Guard("a store is not older than its mark", "if life.transactions < marked.transactions:", BACKUP),
        Guard(
            "no store is made where a mark is left",
            "if not exists(path) and (marked := read_mark(path)) is not None:",
            BACKUP,
        ),
        Guard("a store has a mark", "if marked is None:", BACKUP),
        Guard("the mark is the store's own", "if marked.identity != life.identity:", BACKUP),
    ],
    "fsl_async/protocols/reconciliation.py": [
        Guard("a server whose own store is behind ends", "if why := _behind(ours, theirs):", MEETING, 'if why := "":'),
        Guard("what the other server heard is known to have been said", "if one.said < other.heard:", MEETING),
    ],
    "parties/server/actor.py": [
        Guard(
            "nobody listens to a server whose store is behind",
            "case Heard() | Forwarded() if not self._agreement.listens:",
            MEETING,
            "case Heard() | Forwarded() if False:",
        )
    ],
    "parties/files/disk.py": [
        Guard("a file has one name", "if path.is_file() and names > 1:", "tests/parties/storage/test_sqlite_store.py")
    ],
    "fsl_async/model_numbers.py": [
        Guard(
            "a sum that the model cannot hold is refused",
            "    if beyond:",
            "tests/fsl_async/test_model_numbers.py",
            "    if False:",
        )
    ],
    "parties/client/participation.py": [
        Guard(
            "a session that was answered wrongly is dropped",
            "        except WrongAnswerError:",
            SPOILT,
            "        except ZeroDivisionError:",
        )
    ],
    "fsl_async/geometry.py": [
        Guard(
            "a leaf is one row where rounds serve retrievals alone, too",
            'if task.security == "verified" or task.selection == "fixed" or 2 * row_bits > 128:',
            SPOILT,
            'if task.verified or task.selection == "fixed" or 2 * row_bits > 128:',
        )
    ],
    "parties/server/clients/retrievals.py": [
        Guard(
            "nothing is retrieved where no block has trees",
            "    if not any(run.config.shape.sparse_blocks()):",
            ALONE,
            "    if False:",
        )
    ],
    "parties/server/round/run.py": [
        Guard(
            "what the other server may lack is sent again once on a connection",
            "            self._met = False\n            await",
            HELD_PARTS,
            "            await",
        ),
        Guard(
            "parts that nobody has noted and that contradict each other do not keep a server from starting",
            "if is_noted or (not carries and parts_of[key] == 1):",
            "tests/parties/server/test_harmed_blobs.py",
            "if is_noted or not carries:",
        ),
    ],
    "transport/preamble.py": [
        Guard(
            "only what connects in this direction dials",
            "if (initiator, responder) not in _DIALS:",
            "tests/transport/test_admission.py",
        )
    ],
    "parties/identity/registry.py": [
        Guard(
            "a key is revoked by its beginning, too",
            "self._revoked.get(key) or self._revoked.get(key[: PREFIX_DIGITS // 2])",
            "tests/parties/server/test_token_clients.py",
            "self._revoked.get(key)",
        )
    ],
    "parties/cluster/dask_apart.py": [
        Guard(
            "the process that talks to Dask is shut out of the server's files",
            "confine(begin.certificates or (), tempfile.gettempdir())",
            DASK_APART,
            "begin.certificates",
        )
    ],
    "parties/cluster/engine.py": [
        Guard(
            "a worker's answers have the size that their slice implies",
            "answers.shape != (queries - len(report.damaged), size):",
            "tests/parties/cluster/test_answers.py",
            "answers.shape[:1] != (queries - len(report.damaged),):",
        )
    ],
    "parties/cluster/frames.py": [
        Guard("what workers send is whole numbers", "if not NUMBERS.fullmatch(form.numbers) or", DASK_APART, "if")
    ],
    "parties/server/peer/link.py": [
        Guard(
            "a server that breaks the rules hears which",
            'await say_why(channel, farewell("malformed", self.peer, error))',
            LINK,
            "pass",
        )
    ],
    "transport/handshake.py": [
        Guard(
            "who pads badly hears of it once there are keys",
            "await _send_answer(wire, writer, Refusal(str(error)))",
            REFUSALS,
            "pass",
        )
    ],
    "parties/server/replies.py": [
        Guard(
            "last words wait for nobody",
            "trio.move_on_after(CLOSE_PATIENCE, shield=True)",
            CONNECTION,
            "trio.move_on_after(60, shield=True)",
        )
    ],
    "parties/server/peer/listening.py": [
        Guard(
            "that a server stops as planned holds until it is met again",
            "self.stops_since = self.away_since = None",
            LINK,
            "self.away_since = None",
        )
    ],
    "parties/operator/resources.py": [
        Guard(
            "a server that has said that it stops is missed after a while",
            "is_planned = stops is not None and task.observer.setup.clock() < stops + PLANNED_SECONDS",
            "tests/parties/operator/test_resources.py",
            "is_planned = stops is not None",
        )
    ],
    "parties/identity/tokens.py": [
        Guard(
            "a voucher is for one task",
            "digest(Domain.VOUCHER, token, task, bytes([server]))",
            ADMISSION,
            "digest(Domain.VOUCHER, token, bytes([server]))",
        ),
        Guard(
            "a voucher is for one server",
            "digest(Domain.VOUCHER, token, task, bytes([server]))",
            ADMISSION,
            "digest(Domain.VOUCHER, token, task)",
        ),
    ],
}


def failing(path: str, guard: Guard, tree: Path) -> list[str]:
    """Run a guard's tests in a copied tree without it; the tests that fail.

    Raises:
        LookupError: the line is not there exactly once: the catalogue has fallen behind the program.
    """
    file = tree / path
    whole = file.read_text(encoding="utf-8")
    if whole.count(guard.line) != 1:
        raise LookupError(f"{guard.name}: {guard.line!r} stands {whole.count(guard.line)} times in {path}")
    file.write_text(whole.replace(guard.line, guard.without), encoding="utf-8")
    try:
        return failures(guard.files, tree)
    finally:
        file.write_text(whole, encoding="utf-8")


def failures(tests: tuple[str, ...], tree: Path) -> list[str]:
    """Run test files in a copied tree; the tests that fail.

    Raises:
        LookupError: they could not be run.
    """
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", LIMIT, *tests]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode not in (0, 1):
        raise LookupError(f"{tests} could not be run\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return re.findall(r"^FAILED \S+::(\S.*?)(?: - .*)?$", done.stdout, re.MULTILINE)


def copied(to: Path) -> None:
    """Copy what the tests need."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, to / name)


def main() -> int:
    """Run the command; the exit code tells whether every guard was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="guards with this in their name")
    arguments = parser.parse_args()
    chosen = [(path, guard) for path, guards in GUARDS.items() for guard in guards if arguments.only in guard.name]
    table = Table("guard", "where", "failing tests", "the first of them", title="checks removed one at a time")
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder, Progress(console=Console(stderr=True)) as progress:
        copied(Path(folder))
        broken = failures(tuple(sorted({test for _, guard in chosen for test in guard.files})), Path(folder))
        if broken:
            raise SystemExit(f"with all checks in place these fail: {', '.join(broken)}")
        for path, guard in progress.track(chosen):
            found = failing(path, guard, Path(folder))
            unnoticed += not found
            table.add_row(guard.name, path, str(len(found)), escape(found[0]) if found else "NONE")
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table)
    console.print(f"{len(chosen) - unnoticed} of {len(chosen)} guards: a test notices their absence")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
