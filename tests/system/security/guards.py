"""Every check, taken out one at a time: `python -m tests.system.security.guards` prints which tests notice.

A guard is one line of the program and what it becomes without its check. The tree is copied, the line changed in the
copy, and the guard's tests run there; the copy is put right again before the next. A guard that no test misses is a
failure of this command, and so is a test that fails with all checks in place.
"""

from __future__ import annotations

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

BYZANTINE = "tests/system/security/test_byzantine_server.py"
EQUIVOCATION = "tests/system/security/test_equivocation.py"
DRAWING = "tests/parties/server/round/test_sample.py"
WRONG_ANSWERS = "tests/fsl_async/client/test_wrong_answers.py"
SPOILT = "tests/system/security/test_spoilt_answers.py"
LEAKAGE = "tests/system/security/test_leakage.py"
STORED = "tests/system/security/test_stored_words.py"
ONE_FORM = "tests/transport/test_one_form_of_a_key.py"
REFUSED = "tests/system/security/test_refused_sums.py"
MALFORMED = "tests/system/security/test_malformed_trees.py"
BOUND_ROUNDS = "tests/system/security/test_bounds.py"
BOUND_ATTACKS, BOUND_TERMS, BOUND_WEIGHTS = (
    f"tests/fsl_async/bounds/test_{name}.py" for name in ("attacks", "terms", "weights")
)
BOUNDED = "tests/system/security/test_lies_about_bounds.py"
PLAIN = "tests/fsl_async/test_plain_union_rounds.py"
ABSENCE = "tests/system/security/test_absence.py"
WORDS = "tests/system/security/test_words_of_servers.py"
REPEATED = "tests/system/security/test_repeated_rounds.py"
REPETITION = "tests/system/security/test_repetition.py"
PUT_BACK = "tests/system/security/test_put_back.py"
TRANSCRIPTS = "tests/fsl_async/protocols/test_transcripts_round.py"
BACKUP = "tests/parties/deployment/test_backup.py"
TAMPERING = "tests/transport/test_tampering.py"
RECORDS = "tests/transport/test_records.py"
MEETING = "tests/parties/server/peer/test_reconciliation.py"
CONTRIBUTORS = "tests/system/security/test_contributors.py"
COUNTS = "tests/fsl_async/server/test_contributors.py"
COUNTING = "tests/fsl_async/protocols/test_transcripts_counting.py"
DASK_APART = "tests/parties/cluster/test_dask_apart.py"
ALONE = "tests/parties/server/test_protocols_alone.py"


@dataclass(frozen=True)
class Guard:
    """A check in one line.

    Attributes:
        name: what it guards.
        path: where it stands.
        line: the part of the line that changes; it must be there exactly once.
        without: what it becomes.
        tests: where it should be missed.
    """

    name: str
    path: str
    line: str
    without: str
    tests: tuple[str, ...]


ROUND, EFFECTS, TOSS, ASSEMBLY = (
    f"fsl_async/protocols/{name}.py" for name in ("ssa/transitions", "ssa/side_effects", "toss", "assembly")
)
SESSION, MACHINE, ENTRY = (f"fsl_async/protocols/{name}.py" for name in ("epochs", "machine", "entry"))
NOISY_ROUNDS, LEDGER_OF_CLIENT = "tests/parties/server/test_noise.py", "tests/parties/client/test_ledger.py"
UNION_OF_CLIENT = "fsl_async/protocols/psu/client.py"
DEPOSITS, SUBMISSIONS = (f"parties/server/clients/{name}.py" for name in ("deposits", "submissions"))
AGGREGATING, SERVER = (f"parties/server/{name}.py" for name in ("round/aggregating", "server"))
ACTOR, FORWARDING, REQUEST_ASSEMBLY = (
    f"parties/server/{name}.py" for name in ("actor", "peer/forwarding", "round/assembly")
)
ROUNDS, SEQUENCE = (f"parties/server/{name}.py" for name in ("rounds", "round_sequence"))
DOWNLOADS, ENTERING, SUBMITTING, OUTCOMES = (
    f"parties/client/{name}.py" for name in ("downloads", "entering", "submitting", "outcomes")
)
RESTORING = "parties/deployment/backup.py"
UPLOAD, DERIVATION, CONFIG = (f"fsl_async/{name}.py" for name in ("client/upload", "derivation", "config"))
ENROLMENT = "parties/server/admission.py"
TASK_ROUTER = "parties/server/task_router.py"
MERKLE, ROOTS = "fsl_async/merkle.py", "tests/system/security/test_roots.py"
SEVERAL = "tests/parties/server/test_several_tasks.py"
NOISE, ENTRIES = "transport/noise.py", "fsl_async/wire/peer_lists.py"
ARRIVING = "parties/server/round/shares.py"
RECORDS_OF_ROUNDS, PLACES = (f"parties/server/round/{name}.py" for name in ("records", "places"))
RULES, RULES_TESTED = "fsl_async/server/rules.py", "tests/fsl_async/server/test_rules.py"
SUM_LIMITS = "fsl_async/server/sum_limits.py"

GUARDS = (
    Guard(
        "a message has one encoding",
        "fsl_async/wire/codec.py",
        "if came == expected:",
        "if True:",
        ("tests/fsl_async/wire/test_codec.py",),
    ),
    Guard(
        "fields have their sizes, where those depend",
        "fsl_async/wire/codec.py",
        "if not holds(getattr(message, name)):",
        "if False:",
        ("tests/fsl_async/wire/test_codec.py",),
    ),
    Guard(
        "no bulk follows a message that has none",
        "fsl_async/wire/codec.py",
        "if used < total and not message.carries_bulk:",
        "if False:",
        ("tests/fsl_async/wire/test_codec.py",),
    ),
    Guard(
        "each record of a message but its last is full",
        "transport/records.py",
        "if record != size + 1 + TAG_SIZE:",
        "if False:",
        (RECORDS,),
    ),
    Guard(
        "credentials have one encoding",
        "parties/identity/handshake.py",
        "if credentials.encode() != payload:",
        "if False:",
        ("tests/parties/server/test_admission.py",),
    ),
    Guard(
        "a listed client has signed its credentials",
        ENROLMENT,
        "if not credentials.is_signed_for(client.channel):",
        "if False:",
        ("tests/parties/server/test_admission.py",),
    ),
    Guard(
        "a client that means another task hears which is served, and nothing else",
        "parties/server/clients/connection.py",
        "if not (self._same_task or isinstance(message, AskTask)):",
        "if False:",
        ("tests/parties/server/test_registration.py",),
    ),
    Guard(
        "a client comes in a client's role",
        "parties/server/server.py",
        "if role != Role.CLIENT:",
        "if False:",
        ("tests/parties/server/test_registration.py",),
    ),
    Guard(
        "a round takes what belongs to its protocol",
        "parties/server/clients/requests.py",
        "if isinstance(message, FOREIGN[run.config.protocol]):",
        "if False:",
        (ALONE,),
    ),
    Guard(
        "a carrier forwards what belongs to the round's protocol",
        FORWARDING,
        "if message.purpose not in PURPOSES[config.protocol]:",
        "if False:",
        (ALONE,),
    ),
    Guard(
        "a round is closed by what both servers have",
        "parties/server/round/aggregating.py",
        "return held + min(len(state.entries) - held, self._peer_holds) >= self._start.enough",
        "return True",
        ("tests/parties/server/test_closing.py",),
    ),
    Guard(
        "a round of retrievals has one outcome",
        "fsl_async/protocols/psr/transitions.py",
        "if event.outcome != terms.outcome:",
        "if False:",
        (ALONE,),
    ),
    Guard(
        "who aborts retrievals says why",
        "fsl_async/protocols/psr/transitions.py",
        "if not event.explanation:",
        "if False:",
        (ALONE,),
    ),
    Guard(
        "a round runs a protocol of its task",
        "fsl_async/config.py",
        "if self.protocol not in self.task.round_protocols:",
        "if False:",
        ("tests/fsl_async/test_config.py",),
    ),
    # bounds
    Guard(
        "bound: no point shows values",
        "fsl_async/bounds/masking.py",
        "if point > 2 * terms.wires.calls:",
        "if True:",
        ("tests/fsl_async/bounds/test_tiny_fields.py",),
    ),
    Guard(
        "bound: an element has one encoding",
        "fsl_async/bounds/field.py",
        "if element >= self.prime:",
        "if False:",
        (BOUND_ATTACKS,),
    ),
    Guard(
        "bound: a private part has its size",
        "fsl_async/bounds/server.py",
        "if len(private) != terms.private_bytes:",
        "if False:",
        (BOUND_ATTACKS,),
    ),
    Guard(
        "bound: links are compared",
        "fsl_async/bounds/server.py",
        "return same(ours[:split], theirs[:split]) and holds(",
        "return holds(",
        (BOUND_ATTACKS,),
    ),
    Guard(
        "bound: squares sum up to the limit",
        "fsl_async/bounds/sum_of_squares.py",
        "return list(totals) == right and dot(",
        "return dot(",
        (BOUND_ATTACKS,),
    ),
    Guard(
        "bound: what is said of a weight sums up to its own limit",
        "fsl_async/bounds/sum_of_squares.py",
        "return list(totals) == right and dot(",
        "return list(totals)[:1] == right[:1] and dot(",
        (BOUND_WEIGHTS,),
    ),
    Guard(
        "bound: a weight is the servers' own word of it",
        "fsl_async/bounds/server.py",
        "projected.append(_word_of_weight(terms, elements))",
        "pass",
        (BOUND_WEIGHTS,),
    ),
    Guard(
        "bound: the sum is of the wires' squares",
        "fsl_async/bounds/sum_of_squares.py",
        " and dot(wires.field, wire_values, wire_values) == at_point",
        "",
        (BOUND_ATTACKS,),
    ),
    Guard(
        "bound: a client sends nothing that exceeds it",
        "fsl_async/bounds/client.py",
        "if squares > terms.norm**2:",
        "if False:",
        (BOUND_ATTACKS,),
    ),
    Guard(
        "bound: honest clients are counted",
        "fsl_async/bounds/of_task.py",
        "if terms.exact and self.nonzero",
        "if False and self.nonzero",
        (BOUND_TERMS,),
    ),
    Guard(
        "bound: projections are short in the ring",
        "fsl_async/bounds/of_task.py",
        "if not terms.exact and ROOM",
        "if False and ROOM",
        (BOUND_TERMS,),
    ),
    Guard(
        "bound: nothing wraps in the field",
        "fsl_async/bounds/of_task.py",
        "if terms.largest_sum >= terms.field.prime:",
        "if False:",
        (BOUND_TERMS,),
    ),
    Guard(
        "bound: no sum of bounded updates wraps",
        "fsl_async/bounds/of_task.py",
        "if self.max_clients**2 * self.payloads * terms.guaranteed_square >= 4 ** (self.ring_bits - 1):",
        "if False:",
        (BOUND_TERMS,),
    ),
    Guard(
        "bound in rounds: what both servers say is judged",
        ROUND,
        "elif terms.bound is not None and not accepts(terms.bound, mine[DIGEST_BYTES:], other[DIGEST_BYTES:]):",
        "elif False:",
        (BOUND_ROUNDS,),
    ),
    Guard(
        "bound in rounds: an answer has its form",
        ROUND,
        "check_answer(terms.bound, other[DIGEST_BYTES:], terms.peer)",
        "pass",
        (BOUND_ROUNDS,),
    ),
    Guard(
        "bound in rounds: a private part has its form",
        DEPOSITS,
        "check_private(terms, private, wanted.key.client)",
        "pass",
        (BOUND_ROUNDS,),
    ),
    Guard(
        "bound in rounds: a private part is the one that was committed to",
        DEPOSITS,
        "if not same(private_digest(private, wanted.seed), wanted.bound_digest):",
        "if False:",
        (BOUND_ROUNDS,),
    ),
    Guard(
        "bound in rounds: every proof has a salt of its own",
        "parties/client/submission.py",
        "fresh = randomness(SALT_BYTES) if",
        "fresh = bytes(SALT_BYTES) if",
        (PUT_BACK,),
    ),
    # trees
    Guard(
        "proof digests are compared",
        ROUND,
        "if not same(mine[:DIGEST_BYTES], other[:DIGEST_BYTES]):",
        "if False:",
        (EQUIVOCATION,),
    ),
    Guard(
        "κ is bound to the seeds' commitments",
        DERIVATION,
        "parts = (config.round_id(), client.encode(), tree, *commitments)",
        "parts = (config.round_id(), client.encode(), tree)",
        (MALFORMED,),
    ),
    Guard(
        "κ is bound to the trees",
        DERIVATION,
        "parts = (config.round_id(), client.encode(), tree, *commitments)",
        "parts = (config.round_id(), client.encode(), *commitments)",
        (MALFORMED,),
    ),
    Guard(
        "κ is bound to the client",
        DERIVATION,
        "parts = (config.round_id(), client.encode(), tree, *commitments)",
        "parts = (config.round_id(), tree, *commitments)",
        (MALFORMED,),
    ),
    Guard(
        "seed commitments are bound to the round",
        DERIVATION,
        "msk, round_id, client.encode(), bytes([server]))",
        "msk, client.encode(), bytes([server]))",
        (MALFORMED,),
    ),
    Guard("padding is zero", DEPOSITS, "if padded is None:", "if True:", (EQUIVOCATION,)),
    # what clients send
    Guard(
        "a seed is the committed one",
        DEPOSITS,
        "or not same(expected, message.commitments[server]):",
        "or False:",
        (EQUIVOCATION,),
    ),
    Guard(
        "a dense share is the announced one",
        DEPOSITS,
        "if not same(dense_digest(dense, wanted.seed), deposit.dense):",
        "if False:",
        (EQUIVOCATION, "tests/parties/server/clients/test_deposits.py"),
    ),
    Guard(
        "both halves of a request agree", ASSEMBLY, "if same(announced, received) else", "if True else", (EQUIVOCATION,)
    ),
    Guard(
        "a mismatch said again is harmless",
        ASSEMBLY,
        "return event.public_digest == (state.announced if isinstance(event, Direct) else state.received)",
        "return isinstance(event, Direct) and event.public_digest == state.announced",
        ("tests/fsl_async/protocols/test_transcripts.py",),
    ),
    Guard(
        "one submission per client",
        PLACES,
        "if known != submission:",
        "if False:",
        (EQUIVOCATION, "tests/parties/client/test_bad_input.py"),
    ),
    Guard(
        "a request is for the open round",
        ROUNDS,
        "and run.round_id == round_id and run.driver.serves(client):",
        "and run.driver.serves(client):",
        (EQUIVOCATION,),
    ),
    Guard(
        "a submission covers the proof of its bound",
        DERIVATION,
        "return digest(Domain.SUBMISSION, bind, bound)",
        "return digest(Domain.SUBMISSION, bind)",
        (BOUNDED,),
    ),
    Guard(
        "a public part covers the digest of the dense share",
        DERIVATION,
        'pieces.items() if kind != "tree"))',
        'pieces.items() if kind not in ("tree", "dense")))',
        ("tests/fsl_async/client/test_planting.py",),
    ),
    Guard(
        "a submission covers both seeds",
        DERIVATION,
        "return digest(Domain.BINDING, round_id, identity, public, tree, *commitments)",
        "return digest(Domain.BINDING, round_id, identity, public, tree)",
        (EQUIVOCATION,),
    ),
    Guard("an epoch has one hint", SESSION, "if event.hint != state.hint:", "if False:", (EQUIVOCATION,)),
    Guard(
        "epochs rise",
        SESSION,
        "if event.epoch < state.epoch:",
        "if False:",
        ("tests/fsl_async/protocols/test_transcripts.py", EQUIVOCATION),
    ),
    Guard("a conversion key serves one epoch", CONFIG, 'self.epoch.to_bytes(8, "little"),', "", (LEAKAGE,)),
    Guard("a conversion key hides one payload", CONFIG, "            salt,\n", "", (REPETITION, PUT_BACK)),
    Guard(
        "a dense mask serves one epoch",
        DERIVATION,
        'Domain.DENSE_MASK, epoch.to_bytes(8, "little"), salt, key=msk',
        "Domain.DENSE_MASK, salt, key=msk",
        (LEAKAGE,),
    ),
    Guard(
        "a dense mask hides one payload",
        UPLOAD,
        "mask = dense_mask(config.shape, msk[1 - carrier], config.epoch, salt)",
        'mask = dense_mask(config.shape, msk[1 - carrier], config.epoch, b"")',
        (REPETITION,),
    ),
    Guard("a salt is nobody's to guess", UPLOAD, 'key = b"".join(client_trees.seeds.msk)', 'key = b""', (REPETITION,)),
    Guard(
        "rows outside a union are left out in silence",
        SUBMITTING,
        "index: (self._unions.named(config, index, rows[within[index]]), values[within[index]])",
        "index: (self._unions.named(config, index, rows), values)",
        (ABSENCE,),
    ),
    Guard(
        "unions are downloaded whole",
        UNION_OF_CLIENT,
        "tuple(Fetch(block) for block in union if block.name not in here)",
        "()",
        (LEAKAGE,),
    ),
    Guard(
        "all that moves plainly is downloaded",
        DOWNLOADS,
        "zip(config.shape.plain_blocks(), config.plain, strict=True)",
        "zip((item for item in config.shape.plain_blocks() if item[0] in wanted), config.plain)",
        (PLAIN,),
    ),
    Guard(
        "a mask hides one payload of rows that move plainly",
        UPLOAD,
        "[*payloads.values(), elements], fresh)",
        "[*payloads.values(), _dense(config.shape, dense, {})], fresh)",
        (REPETITION,),
    ),
    Guard(
        "who moves rows plainly in a verified task can change no more of them",
        "fsl_async/bin_count.py",
        'if task.verified or task.selection == "fixed":',
        'if task.selection == "fixed":',
        ("tests/fsl_async/test_union.py", PLAIN),
    ),
    Guard(
        "rows that move plainly may be updated only where they were retrieved",
        UPLOAD,
        "            _places_among(client_trees.rows[index], rows, block.name, config.task)\n",
        "",
        (PLAIN,),
    ),
    # rounds
    Guard(
        "a roster has equal digests",
        ROUND,
        "if theirs.get(client) == ours[client]}",
        "if client in theirs}",
        (EQUIVOCATION, TRANSCRIPTS),
    ),
    Guard("a roster has enough clients", ROUND, "if len(roster) < terms.minimum:", "if False:", (BYZANTINE,)),
    Guard(
        "enough clients are left after verification",
        ROUND,
        "if len(counted) < terms.minimum:",
        "if False:",
        (TRANSCRIPTS,),
    ),
    Guard("proofs are of the roster", ROUND, "if theirs.keys() != state.roster.keys():", "if False:", (BYZANTINE,)),
    Guard(
        "nobody says two things in one place",
        MACHINE,
        "if before is not None and before != event.content():",
        "if False:",
        (BYZANTINE,),
    ),
    Guard(
        "a share matches its commitment",
        ROUND,
        "if not same(state.peer_commitment, expected):",
        "if False:",
        (BYZANTINE,),
    ),
    Guard(
        "a commitment names the roster",
        EFFECTS,
        "bytes([server]), roster, *of_counts, share, nonce)",
        "bytes([server]), *of_counts, share, nonce)",
        (TRANSCRIPTS,),
    ),
    Guard(
        "a commitment names the server",
        EFFECTS,
        "terms.round_id, bytes([server]), roster,",
        "terms.round_id, roster,",
        (TRANSCRIPTS,),
    ),
    Guard(
        "no share comes early",
        AGGREGATING,
        "case messages.Share() if isinstance(self.state, ssa.BEFORE_REVEALED):",
        "case messages.Share() if False:",
        (BYZANTINE,),
    ),
    Guard("a share has its size", ARRIVING, "if len(data) != DIGEST_BYTES * len(spans):", "if False:", (BYZANTINE,)),
    Guard("pieces come in order", ARRIVING, "if place != coming.next:", "if False:", (BYZANTINE,)),
    Guard("a piece has its size", ARRIVING, "if len(piece) != expected:", "if False:", (BYZANTINE,)),
    Guard("a piece is the listed one", ARRIVING, "if name != listed.pieces[place]:", "if False:", (BYZANTINE,)),
    Guard(
        "pieces are sent only once both have committed",
        AGGREGATING,
        "if not isinstance(state, ssa.Revealed | ssa.Combined | ssa.Concluded):",
        "if False:",
        (BYZANTINE,),
    ),
    Guard(
        "pieces are asked for once",
        "parties/server/round/outbox.py",
        "if self._pieces_asked:",
        "if False:",
        (BYZANTINE,),
    ),
    Guard(
        "a piece that is read back is compared with its digest",
        "parties/server/round/shares.py",
        "if not same(await self._lane.run(partial(piece_digest, piece)), name):",
        "if False:",
        ("tests/parties/server/round/test_shares.py",),
    ),
    Guard(
        "bulk that is read back is compared with its digest",
        "parties/server/round/reading.py",
        "if not await self._lane.run_over(len(content), partial(is_right, content)):",
        "if False:",
        ("tests/parties/server/round/test_reading_back.py",),
    ),
    Guard("who gives up says why", ROUND, "if not event.explanation:", "if False:", (BYZANTINE, TRANSCRIPTS)),
    Guard("outcomes agree", ROUND, "if state.outcome != event.outcome:", "if False:", (BYZANTINE,)),
    Guard("a conclusion is a digest", ROUND, "if len(event.outcome) != DIGEST_BYTES:", "if False:", (TRANSCRIPTS,)),
    Guard(
        "nothing that a function raises ends the server",
        RULES,
        "    except BaseException as error:  # whatever else it is",
        "    except RuntimeError as error:  # whatever else it is",
        (RULES_TESTED,),
    ),
    Guard("an own rule's outcomes alone may differ", ROUND, "if not terms.own_rule:", "if False:", (TRANSCRIPTS,)),
    Guard(
        "a function is run only if the server's own file names it",
        "parties/deployment/server.py",
        "if file.apply != task.apply:",
        "if False:",
        ("tests/parties/deployment/test_round_files.py",),
    ),
    Guard(
        "a client's weight is at most the largest",
        "parties/client/arguments.py",
        "if task.largest_weight is not None and units > task.largest_weight_integer:",
        "if False:",
        (BOUND_ROUNDS,),
    ),
    Guard("weights do not sum to less than 0", RULES, "if weight < 0:", "if False:", (RULES_TESTED,)),
    Guard(
        "what a function says when it fails is not told to clients",
        RULES,
        'raise OwnRuleError(f"{task.apply} raised {type(error).__name__}") from error',
        'raise OwnRuleError(f"{task.apply} raised {error}") from error',
        (RULES_TESTED,),
    ),
    Guard(
        "a client's weight is at least 0",
        "parties/client/arguments.py",
        "if units < 0:",
        "if False:",
        ("tests/parties/server/test_server_rules.py",),
    ),
    Guard("models agree", TOSS, "if event.model != half.model:", "if False:", (BYZANTINE,)),
    Guard(
        "a seed tossed is the committed one",
        TOSS,
        "if not same(expected, _commit(1 - half.server, half.number, event.seed, event.nonce)):",
        "if False:",
        (BYZANTINE,),
    ),
    Guard("a toss is for the present round", SEQUENCE, "if message.number > number:", "if False:", (BYZANTINE,)),
    Guard(
        "a carrier forwards for its own clients",
        FORWARDING,
        "if config.carrier(message.client) == run.server:",
        "if False:",
        (BYZANTINE,),
    ),
    Guard(
        "of what is forwarded for a request one part is stored",
        FORWARDING,
        "if run.requests.wants(key, name) or run.records.awaits(key, name):",
        "if not run.requests.has_public(key, name):",
        (STORED,),
    ),
    Guard(
        "parts are stored for known clients",
        FORWARDING,
        "if known and run.requests.has_place(client):",
        "if run.requests.has_place(client):",
        (STORED,),
    ),
    Guard(
        "the peer forwards for so many clients that have not come",
        REQUEST_ASSEMBLY,
        "if client not in self._present and len(self._expected) < self._places:",
        "if client not in self._present:",
        (STORED,),
    ),
    Guard(
        "a sum is what its clients can have contributed",
        SUM_LIMITS,
        "if self._beyond is None and weights.size and not -most",
        "if False and self._beyond is None and not -most",
        (REFUSED,),
    ),
    Guard(
        "a sum is no longer than what its clients have proved, and what is beyond it names the other server",
        SUM_LIMITS,
        "if self._terms is not None and self._squares > largest_square(task, self._terms, clients):",
        "if False:",
        ("tests/fsl_async/server/test_sum_limits.py",),
    ),
    Guard(
        "a sum of weights is one that clients have proved, and what is none names the other server",
        SUM_LIMITS,
        "if task.largest_weight and not -reach <= self._weight",
        "if False and not -reach <= self._weight",
        ("tests/fsl_async/server/test_sum_limits.py",),
    ),
    Guard(
        "where weights are proved, a mean divides by no less than one client's largest",
        RULES,
        "return max(weight, task.largest_weight or 0.0)",
        "return weight",
        (RULES_TESTED, BOUND_ROUNDS),
    ),
    Guard(
        "clients that lie do not reach the least contributors by themselves",
        "fsl_async/options/protecting.py",
        "if cast(int, task.min_contributors) < least:",
        "if False:",
        ("tests/fsl_async/test_task.py",),
    ),
    Guard(
        "who is in no task hears of none",
        TASK_ROUTER,
        "in self._servers.items() if server.enrolment.by_channel(key)}",
        "in self._servers.items()}",
        (SEVERAL,),
    ),
    Guard(
        "a connection is its task's, whoever else knows the key",
        TASK_ROUTER,
        "return self._servers[task]",
        "return next(iter(self._servers.values()))",
        (SEVERAL,),
    ),
    Guard(
        "marks of tasks say nothing to those who do not have them",
        "parties/identity/handshake.py",
        "return digest(Domain.SERVED, task, key=salt)[:MARK_BYTES]",
        "return task[:MARK_BYTES]",
        (SEVERAL,),
    ),
    Guard(
        "a key enrols once",
        ENROLMENT,
        "if self._enrolled.by_channel(key) is not None:",
        "if False:",
        ("tests/parties/server/test_admission.py",),
    ),
    Guard(
        "a static key has one form",
        NOISE,
        'if not is_public_key(self._remote["s"]):',
        "if False:",
        (ONE_FORM,),
    ),
    Guard(
        "names on a roster name clients",
        ENTRIES,
        "if not is_client_name(client):",
        "if False:",
        (STORED,),
    ),
    Guard(
        "a share is judged before it is stored",
        AGGREGATING,
        "if self.after(listed.said) != self.state:  # judged before any piece is asked for",
        "if True:",
        (STORED,),
    ),
    Guard(
        "counts are judged before they are stored",
        AGGREGATING,
        "if self.after(said) != self.state:  # judged before they are stored",
        "if True:",
        (STORED,),
    ),
    Guard(
        "counts have the size that the task implies",
        RECORDS_OF_ROUNDS,
        "if len(counts) != expected:",
        "if False:",
        (STORED, CONTRIBUTORS),
    ),
    Guard(
        "a commitment names the counts",
        EFFECTS,
        "bytes([server]), roster, *of_counts, share, nonce)",
        "bytes([server]), roster, share, nonce)",
        (COUNTING,),
    ),
    Guard(
        "counts are said once, also before ours",
        ROUND,
        "if recall(state.heard, event, terms.peer):",
        "if False:",
        (COUNTING,),
    ),
    Guard(
        "where contributors are counted, nothing is summed before",
        ROUND,
        "if isinstance(state, Verified) and terms.contributors:",
        "if False:",
        (COUNTING,),
    ),
    Guard(
        "counts are ones that clients can have",
        "parties/server/round/computation.py",
        "if effect.counts and self._start.config.task.privacy is None:",
        "if False:",
        (CONTRIBUTORS,),
    ),
    Guard(
        "every tree counts once",
        "fsl_async/server/aggregation.py",
        "totals.counts(self._server) if totals and self._counts else {}",
        "{}",
        (COUNTS,),
    ),
    Guard(
        "rows with too few contributors are not opened",
        "fsl_async/server/contributors.py",
        "np.flatnonzero(part.counts >= least)",
        "np.flatnonzero(part.counts >= 0)",
        (COUNTS, CONTRIBUTORS),
    ),
    Guard(
        "a dummy counts on no row",
        "fsl_async/client/planting.py",
        "np.where(item >= 0, position, forest.leaves - 1)",
        "np.where(item >= 0, position, 0)",
        (COUNTS,),
    ),
    Guard(
        "what is ahead of its turn is said once",
        MACHINE,
        "if type(other) is type(event) and other != event:",
        "if False:",
        (STORED,),
    ),
    Guard("a forwarded part has its size", FORWARDING, "if size not in sizes:", "if False:", (BYZANTINE,)),
    Guard(
        "a round is one that both know",
        SEQUENCE,
        "if not self._rounds.is_past(round_id):\n            raise PeerViolationError(",
        "if False:\n            raise PeerViolationError(",
        (BYZANTINE,),
    ),
    Guard(
        "servers run one task",
        SERVER,
        "if payload != self.setup.task.digest():\n                return Refusal",
        "if False:\n                return Refusal",
        (BYZANTINE,),
    ),
    # what servers tell clients
    Guard("servers announce one round", ENTRY, "if difference is not None:", "if False:", (BYZANTINE,)),
    Guard("servers agree who is drawn", ENTRY, "if state.drawn != event.drawn:", "if False:", (DRAWING,)),
    Guard(
        "nobody is left out of a round for everybody",
        ENTERING,
        "if not opened.drawn and config.sample is None:",
        "if False:",
        (DRAWING,),
    ),
    Guard(
        "who is not drawn is refused",
        "parties/server/rounds.py",
        "and run.round_id == round_id and not run.start.is_drawn(client):",
        "and False:",
        (DRAWING,),
    ),
    Guard(
        "the peer lists nobody who was not drawn",
        "parties/server/round/aggregating.py",
        "if others := sorted(client for client in entries if not self._start.is_drawn(client)):",
        "if others := []:",
        (DRAWING,),
    ),
    Guard(
        "the peer forwards for nobody who was not drawn",
        "parties/server/peer/forwarding.py",
        "if not run.start.is_drawn(message.client):",
        "if False:",
        (DRAWING,),
    ),
    Guard(
        "whoever is counted is shown to be on the list",
        "parties/statement.py",
        "if self.seat is not None and not is_seated(self.root, self.participants, self.client, self.seat):",
        "if False:",
        (ROOTS,),
    ),
    Guard(
        "a client whose training fails submits zeros",
        "parties/client/abstaining.py",
        "if _is_elsewhere(error) or not await abstain():",
        "if True:",
        ("tests/system/security/test_taking_part.py",),
    ),
    Guard(
        "values in doubt are not sent again",
        "parties/client/actor.py",
        "if doubt and not again and not is_nothing(sparse, dense):",
        "if False:",
        ("tests/system/security/test_repeated_rounds.py",),
    ),
    Guard(
        "counted is said of the submission that was asked about",
        "parties/client/outcomes.py",
        'if accounts[0].digest not in (b"", last.digest):',
        "if False:",
        ("tests/system/security/test_other_submissions.py",),
    ),
    Guard(
        "a leaf stands for one submission",
        MERKLE,
        "return digest(Domain.ROSTER_LEAF, salt, client.encode(), submission)",
        "return digest(Domain.ROSTER_LEAF, salt, client.encode())",
        (ROOTS, "tests/fsl_async/test_merkle.py"),
    ),
    Guard(
        "a path is exactly as long as the list implies",
        MERKLE,
        "return not beside and same(root, _root(count, node))",
        "return same(root, _root(count, node))",
        (ROOTS, "tests/fsl_async/test_merkle.py"),
    ),
    Guard(
        "a root names how many there are",
        MERKLE,
        'return digest(Domain.ROSTER_ROOT, count.to_bytes(8, "little"), top)',
        "return digest(Domain.ROSTER_ROOT, top)",
        ("tests/fsl_async/test_merkle.py",),
    ),
    Guard(
        "leaves are blinded",
        MERKLE,
        "return derive_key(Domain.ROSTER_SALT, blind, client.encode())",
        "return derive_key(Domain.ROSTER_SALT, client.encode())",
        ("tests/fsl_async/test_merkle.py",),
    ),
    Guard(
        "a statement is for its client",
        "parties/statement.py",
        "if self.client != client:",
        "if False:",
        ("tests/fsl_async/wire/test_hostile_lists.py",),
    ),
    Guard(
        "a round has the pinned keys",
        ENTERING,
        "if config.servers != tuple(identity.keys for identity in self._setup.servers):",
        "if False:",
        (BYZANTINE,),
    ),
    Guard(
        "a receipt is signed",
        OUTCOMES,
        "if not verify(setup.servers[server].statement, receipt.signature,",
        "if False and not verify(setup.servers[server].statement, receipt.signature,",
        (BYZANTINE,),
    ),
    Guard(
        "an outcome is signed",
        OUTCOMES,
        "if not verify(key, finished.message.signature,",
        "if False and not verify(key, finished.message.signature,",
        (BYZANTINE,),
    ),
    Guard(
        "outcomes told are equal",
        OUTCOMES,
        "if not _same_ending(statements[0], statements[1]):",
        "if False:",
        (BYZANTINE, REPEATED),
    ),
    Guard(
        "one server's word does not end a submission",
        SUBMITTING,
        "receipt = await self._outcomes.receipt(self._latest(draft), closed)",
        "raise",
        (REPEATED,),
    ),
    Guard(
        "a server's words are printed and not obeyed",
        "parties/client/requests.py",
        "explanation = printable(message.explanation)",
        "explanation = message.explanation",
        (WORDS,),
    ),
    Guard("one server's account decides nothing", OUTCOMES, "if len(accounts) < 2:", "if not accounts:", (REPEATED,)),
    Guard(
        "an error says that a submission has left",
        OUTCOMES,
        "error.in_doubt = config.number",
        "pass",
        (REPEATED,),
    ),
    Guard(
        "that a pending submission was counted is told",
        OUTCOMES,
        "raise AlreadyCountedError(self._receipt_of(draft), outcome)",
        "pass",
        (REPEATED,),
    ),
    Guard(
        "a command whose time is over says that a submission has left",
        "parties/commands/client_options.py",
        "undecided = client.undecided",
        "undecided = client.pending",
        ("tests/parties/commands/test_killed_commands.py",),
    ),
    # stores
    Guard(
        "no older copy is restored",
        RESTORING,
        "if last.transactions > then.transactions:",
        "if False:",
        (BACKUP,),
    ),
    Guard(
        "a restored server gives up what its copy had begun",
        RESTORING,
        "gives_up=begun and not newest",
        "gives_up=False",
        (BACKUP,),
    ),
    Guard(
        "a block that is downloaded is the announced one",
        DOWNLOADS,
        "if not same(await self._lane.run(described) if whole else described(), ",
        "if False and not same(await self._lane.run(described) if whole else described(), ",
        (BYZANTINE, "tests/parties/client/test_whole_blocks.py"),
    ),
    Guard(
        "a union is the announced one",
        UNION_OF_CLIENT,
        "or not same(event.digest, described[event.block])",
        "or False",
        (BYZANTINE,),
    ),
    Guard(
        "a request that breaks off counts",
        "parties/server/clients/requests.py",
        "run.quota.count(client, Counted.UNFINISHED)",
        "pass",
        ("tests/parties/server/round/test_quota.py",),
    ),
    Guard(
        "room is lent only where all that have begun can end",
        "parties/server/clients/memory_budget.py",
        "if missing > free:",
        "if False:",
        ("tests/parties/server/clients/test_memory_budget.py",),
    ),
    Guard(
        "who is slowest makes room",
        "parties/server/clients/memory_budget.py",
        "slowest.scope.cancel()",
        "pass",
        ("tests/parties/server/clients/test_memory_budget.py",),
    ),
    Guard(
        "who was nearly there and does not end makes room",
        "parties/server/clients/memory_budget.py",
        "return left if seconds < self.spared else inf",
        "return left",
        ("tests/parties/server/clients/test_memory_budget.py",),
    ),
    Guard(
        "a silent peer is taken for lost",
        "transport/channel.py",
        "elif trio.current_time() - heard_at >= SILENCE:",
        "elif False:",
        ("tests/parties/server/clients/test_silence.py",),
    ),
    # noise, and what it has cost
    Guard(
        "a server adds noise to its share",
        "parties/server/round/computation.py",
        "if not sigma:",
        "if True:",
        (NOISY_ROUNDS,),
    ),
    Guard(
        "every element gets noise of its own",
        "fsl_async/privacy/noise.py",
        "kernels.discrete_gaussian(key, int(chunks[start]), sigma,",
        "kernels.discrete_gaussian(key, 0, sigma,",
        ("tests/fsl_async/privacy/test_noise.py",),
    ),
    Guard(
        "no two lists of submissions have the same noise",
        "parties/server/round/computation.py",
        "self._config.round_id(), roster_digest(counted), use)",
        'self._config.round_id(), b"", use)',
        (NOISY_ROUNDS,),
    ),
    Guard(
        "a share that is formed again has the same noise",
        "parties/server/round/computation.py",
        "noise_key(self._identity.noise_secret,",
        "noise_key(__import__('os').urandom(32),",
        (NOISY_ROUNDS,),
    ),
    Guard(
        "a row's noise does not depend on which rows are opened",
        "parties/server/round/computation.py",
        "if rows is None else rows[span.start : span.stop]",
        "",
        (NOISY_ROUNDS,),
    ),
    Guard(
        "a delta above one in the clients is refused",
        "fsl_async/options/protecting.py",
        "privacy.delta * task.max_clients > 1:",
        "False:",
        ("tests/fsl_async/privacy/test_utility.py",),
    ),
    Guard(
        "a server charges a round whose share it sends",
        "parties/server/round/aggregating.py",
        "changes += self._services.ledger.changes(config.number, config.round_id())",
        "pass",
        (NOISY_ROUNDS,),
    ),
    Guard(
        "no round is opened beyond the budget",
        "parties/server/ledger.py",
        "if privacy is None or self.rounds < privacy.rounds:",
        "if True:",
        (NOISY_ROUNDS,),
    ),
    Guard(
        "a store that was made from a copy is charged for what it may have forgotten",
        "parties/server/round_sequence.py",
        "await self._records.ledger.charge_forgotten(self.number)",
        "pass",
        ("tests/parties/server/test_spent_stores.py",),
    ),
    Guard(
        "a client charges a round before its first byte leaves",
        "parties/client/state.py",
        "            *_charge(draft.config),",
        "",
        (LEDGER_OF_CLIENT,),
    ),
    Guard(
        "a client submits nothing beyond its budget",
        "parties/client/outcomes.py",
        "spent.rounds >= task.privacy.rounds",
        "False",
        (LEDGER_OF_CLIENT,),
    ),
    Guard(
        "only what both servers have signed not to be opened is given back",
        "parties/client/outcomes.py",
        "return not outcome.counted and not outcome.opened and not counts_were_opened",
        "return not outcome.counted",
        (LEDGER_OF_CLIENT,),
    ),
    # what lies on a server's disk
    Guard(
        "a round that a copy had begun is given up however often it was restored",
        "parties/server/history.py",
        "return any(restore.gives_up and restore.settled == settled for restore in await self._restores())",
        "return any(restore.gives_up and restore.settled == settled for restore in (await self._restores())[-1:])",
        ("tests/parties/deployment/test_backup.py",),
    ),
    Guard(
        "what is read back is what was written",
        "parties/storage/sqlite_connections.py",
        "if _digest(name, data) != written:",
        "if False:",
        ("tests/parties/storage/test_damaged_files.py",),
    ),
    Guard(
        "names are found as they were written",
        "parties/storage/sqlite_file.py",
        '        if found != "ok":',
        "        if False:",
        ("tests/parties/storage/test_damaged_files.py",),
    ),
    Guard("a copy is no store", "parties/storage/sqlite_file.py", "if application == COPY:", "if False:", (BACKUP,)),
    Guard(
        "a store is not older than its mark",
        "parties/storage/mark.py",
        "if life.transactions < marked.transactions:",
        "if False:",
        (BACKUP,),
    ),
    Guard(
        "no store is made where a mark is left",
        "parties/storage/mark.py",
        "if not exists(path) and (marked := read_mark(path)) is not None:",
        "if False:",
        (BACKUP,),
    ),
    Guard("a store has a mark", "parties/storage/mark.py", "if marked is None:", "if False:", (BACKUP,)),
    Guard(
        "the mark is the store's own",
        "parties/storage/mark.py",
        "if marked.identity != life.identity:",
        "if False:",
        (BACKUP,),
    ),
    Guard(
        "no copy of before a new beginning is restored",
        "parties/deployment/backup.py",
        "if last.identity != then.identity:",
        "if False:",
        (BACKUP,),
    ),
    Guard(
        "a round of which nobody knows what was said is given up",
        SEQUENCE,
        "if run.accepts(GaveUp) and await self._gives_up():",
        "if False:",
        (BACKUP,),
    ),
    Guard(
        "a server whose own store is behind ends",
        "fsl_async/protocols/reconciliation.py",
        "if why := _behind(ours, theirs):",
        'if why := "":',
        (MEETING,),
    ),
    Guard(
        "nobody listens to a server whose store is behind",
        ACTOR,
        "case Heard() | Forwarded() if not self._agreement.listens:",
        "case Heard() | Forwarded() if False:",
        (MEETING,),
    ),
    Guard(
        "what the other server heard is known to have been said",
        "fsl_async/protocols/reconciliation.py",
        "if one.said < other.heard:",
        "if False:",
        (MEETING,),
    ),
    Guard(
        "a file has one name",
        "parties/files/disk.py",
        "if path.is_file() and names > 1:",
        "if False:",
        ("tests/parties/storage/test_sqlite_store.py",),
    ),
    Guard(
        "a sum that the model cannot hold is refused",
        "fsl_async/model_numbers.py",
        "    if beyond:",
        "    if False:",
        ("tests/fsl_async/test_model_numbers.py",),
    ),
    Guard(
        "no row of a wrong answer is handed out",
        "fsl_async/client/upload.py",
        "    if not all(checks):",
        "    if False:",
        (WRONG_ANSWERS,),
    ),
    Guard(
        "a session that was answered wrongly is dropped",
        "parties/client/participation.py",
        "        except WrongAnswerError:",
        "        except ZeroDivisionError:",
        (SPOILT,),
    ),
    Guard(
        "a leaf is one row where rounds serve retrievals alone, too",
        "fsl_async/geometry.py",
        'if task.security == "verified" or task.selection == "fixed":',
        'if task.verified or task.selection == "fixed":',
        (SPOILT,),
    ),
    Guard(
        "nothing is retrieved where no block has trees",
        "parties/server/clients/retrievals.py",
        "    if not any(run.config.shape.sparse_blocks()):",
        "    if False:",
        (ALONE,),
    ),
    Guard(
        "marks of held parts are whole, and have a limit",
        "fsl_async/wire/peer_lists.py",
        "if len(content) % MARK_BYTES or len(content) > most:",
        "if False:",
        ("tests/parties/server/peer/test_held_parts.py",),
    ),
    Guard(
        "what the other server may lack is sent again once on a connection",
        "parties/server/round/run.py",
        "            self._met = False\n            await",
        "            await",
        ("tests/parties/server/peer/test_held_parts.py",),
    ),
    Guard(
        "only what connects in this direction dials",
        "transport/preamble.py",
        "if (initiator, responder) not in _DIALS:",
        "if False:",
        ("tests/transport/test_admission.py",),
    ),
    Guard(
        "parts that nobody has noted and that contradict each other do not keep a server from starting",
        "parties/server/round/run.py",
        "if is_noted or (not carries and parts_of[key] == 1):",
        "if is_noted or not carries:",
        ("tests/parties/server/test_harmed_blobs.py",),
    ),
    Guard(
        "a key is revoked by its beginning, too",
        "parties/identity/registry.py",
        "self._revoked.get(key) or self._revoked.get(key[: PREFIX_DIGITS // 2])",
        "self._revoked.get(key)",
        ("tests/parties/server/test_token_clients.py",),
    ),
    Guard(
        "the process that talks to Dask is shut out of the server's files",
        "parties/cluster/dask_apart.py",
        "confine(begin.certificates or (), tempfile.gettempdir())",
        "begin.certificates",
        (DASK_APART,),
    ),
    Guard(
        "what workers send is whole numbers",
        "parties/cluster/frames.py",
        "if not NUMBERS.fullmatch(form.numbers) or",
        "if",
        (DASK_APART,),
    ),
    Guard(
        "who breaks the rules hears which before the connection ends",
        "parties/server/clients/connection.py",
        'await self._say_why("malformed", error)',
        "pass",
        ("tests/parties/server/clients/test_connection.py",),
    ),
    Guard(
        "a server that breaks the rules hears which",
        "parties/server/peer/link.py",
        'await say_why(channel, farewell("malformed", self.peer, error))',
        "pass",
        ("tests/parties/server/peer/test_link.py",),
    ),
    Guard(
        "last words wait for nobody",
        "parties/server/replies.py",
        "trio.move_on_after(CLOSE_PATIENCE, shield=True)",
        "trio.move_on_after(60, shield=True)",
        ("tests/parties/server/clients/test_connection.py",),
    ),
    Guard(
        "that a server stops as planned holds until it is met again",
        "parties/server/peer/listening.py",
        "self.stops_since, self._why_lost = None,",
        "self._why_lost =",
        ("tests/parties/server/peer/test_link.py",),
    ),
    Guard(
        "a server that has said that it stops is missed after a while",
        "parties/operator/resources.py",
        "is_planned = stops is not None and task.observer.setup.clock() < stops + PLANNED_SECONDS",
        "is_planned = stops is not None",
        ("tests/parties/operator/test_resources.py",),
    ),
    Guard(
        "a client that is turned away hears why",
        "parties/server/clients/connection.py",
        'await replies.say_why(channel, replies.farewell("malformed", client, why))',
        "pass",
        ("tests/parties/server/test_registration.py",),
    ),
    Guard(
        "a voucher is for one task",
        "parties/identity/tokens.py",
        "digest(Domain.VOUCHER, token, task, bytes([server]))",
        "digest(Domain.VOUCHER, token, bytes([server]))",
        ("tests/parties/server/test_admission.py",),
    ),
    Guard(
        "a voucher is for one server",
        "parties/identity/tokens.py",
        "digest(Domain.VOUCHER, token, task, bytes([server]))",
        "digest(Domain.VOUCHER, token, task)",
        ("tests/parties/server/test_admission.py",),
    ),
    Guard(
        "a hint's part is the one that it announces",
        "parties/server/clients/deposits.py",
        "if same(wanted.announced, deposit.part):",
        "if True:",
        ("tests/parties/server/clients/test_deposits.py",),
    ),
    Guard(
        "a submission says the digest of a bound's proof exactly where the round has a bound",
        "parties/server/clients/deposits.py",
        "if len(message.bound_digest) != size:",
        "if False:",
        ("tests/parties/server/clients/test_deposits.py",),
    ),
)


def failing(guard: Guard, tree: Path) -> list[str]:
    """Run a guard's tests in a copied tree without it; the tests that fail.

    Raises:
        LookupError: the line is not there exactly once: the catalogue has fallen behind the program.
    """
    file = tree / guard.path
    whole = file.read_text(encoding="utf-8")
    if whole.count(guard.line) != 1:
        raise LookupError(f"{guard.name}: {guard.line!r} stands {whole.count(guard.line)} times in {guard.path}")
    file.write_text(whole.replace(guard.line, guard.without), encoding="utf-8")
    try:
        return failures(guard.tests, tree)
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
    chosen = [guard for guard in GUARDS if arguments.only in guard.name]
    table = Table("guard", "where", "failing tests", "the first of them", title="checks removed one at a time")
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder, Progress(console=Console(stderr=True)) as progress:
        copied(Path(folder))
        broken = failures(tuple(sorted({test for guard in chosen for test in guard.tests})), Path(folder))
        if broken:
            raise SystemExit(f"with all checks in place these fail: {', '.join(broken)}")
        for guard in progress.track(chosen):
            found = failing(guard, Path(folder))
            unnoticed += not found
            table.add_row(guard.name, guard.path, str(len(found)), escape(found[0]) if found else "NONE")
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table)
    console.print(f"{len(chosen) - unnoticed} of {len(chosen)} guards: a test notices their absence")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
