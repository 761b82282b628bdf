"""Who may take part: whether a server lets in the holder of a key, and under which name.

    revoked key ────────────────────────────────────────> refused
    known key ──────────────────────────────────────────> in, under the name and keys it is known by
    unknown key ── list ────────────────────────────────> refused
                ── token ── a voucher nobody has used ──┐
                ── open ────────────────────────────────┴> enrolled: recorded, then in

Rules: on each server, a name belongs to one key for good, and so does a token. An enrolment is in the store before the
client hears of it, and is read back at the start. The answer to anything that a stranger sends is a reason, never an
error. Where the operator's list and an enrolment contradict each other, the list holds. The list can be replaced while
the server runs: a client that is not known any more is disconnected; what this server has acknowledged to it by then
stays, and counts.

The two servers decide independently. A client that one of them does not know, or knows by another name or other keys,
cannot be counted: a submission's digest covers the client's name and keys, so the rosters differ.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import trio

from fsl_async.digests import same
from fsl_async.errors import ChannelError, MisuseError, PeerViolationError, StorageError
from parties.concurrency import RecurringEvent
from parties.events import Enrolled, Observer, unobserved
from parties.identity.handshake import NO_VOUCHER, Credentials
from parties.identity.keys import PublicIdentity, key_prefix
from parties.identity.registry import RESERVED, Registry
from parties.identity.tokens import TokenBook
from parties.storage.store import Store, decode_stored
from transport import Refusal

_log = logging.getLogger("parties.enrolment")

JOURNAL = "enrolment"
"""The journal of enrolments in a server's store."""

MOST_ENROLLED = 1_000_000

OPEN_WARNING = (
    "enrolment is open: anybody who reaches this server can take part, under as many free names as they like. A sum "
    "hides a client only among clients that one adversary does not control, so min_clients protects nobody here; use "
    'enrolment = "list" or "token" for anything but a trial'
)


UNSIGNED = Refusal("the statement key has not signed for this channel key; use one identity file for both")


class DismissedError(ChannelError):
    """A server has ended a client's connection, because the client is not known any more."""


@dataclass(frozen=True)
class ListOnly:
    """A server lets in the operator's list of clients and nobody else.

    What `ServerSetup.policy` is unless something else is given.
    """


@dataclass(frozen=True)
class WithToken:
    """A server lets in the list, and every client that first shows the voucher of a token.

    Attributes:
        book: the tokens that the operator has given out, and what is left of each.
    """

    book: TokenBook


@dataclass(frozen=True)
class Anyone:
    """A server lets in the list, and every client that is the first with its name.

    Anybody who reaches the server can then take part, under any number of names: see docs/security.md.
    """


Policy: TypeAlias = ListOnly | WithToken | Anyone


class StoredEnrolment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of the journal: a client, and the digest of the voucher it has used (empty where none was asked)."""

    name: str
    channel: bytes
    statement: bytes
    token: bytes

    @property
    def client(self) -> PublicIdentity:
        """Who enrolled."""
        return PublicIdentity(self.name, self.channel, self.statement)


def enrolled_in(entries: Iterable[bytes], source: str) -> list[PublicIdentity]:
    """The clients that have enrolled, by the entries of a server's journal, in order.

    Raises:
        StorageError: they cannot be read.
    """
    return [decode_stored(entry, StoredEnrolment, source).client for entry in entries]


class Enrolment:
    """The clients that one server knows, and how others become known.

    Args:
        server: the server's name, for messages.
        task: the digest of its task.
        listed: the operator's list; the caller may add to it at any time, and `reload` replaces it.
        policy: who else may enrol; `take_tokens` replaces the tokens.
        store: where enrolments are recorded.
        observe: hears of every client that has enrolled.

    Attributes:
        reloaded: occurs whenever the list was replaced.
    """

    def __init__(
        self,
        server: str,
        task: bytes,
        listed: Registry,
        policy: Policy,
        store: Store,
        observe: Observer = unobserved,
    ) -> None:
        self._server = server
        self._task = task
        self._listed = listed
        self._policy = policy
        self._store = store
        self._observe = observe
        self._enrolled = Registry()
        self._spent: set[bytes] = set()
        self._turn = trio.Lock()
        self.reloaded = RecurringEvent()
        self._sorted: tuple[tuple[int, int], tuple[str, ...]] | None = None

    @property
    def warning(self) -> str | None:
        """What the operator must know about the policy; none where there is nothing to say."""
        return OPEN_WARNING if isinstance(self._policy, Anyone) else None

    async def restore(self) -> None:
        """Read back the enrolments.

        Raises:
            StorageError: the journal cannot be read.
        """
        for data in await self._store.entries(JOURNAL):
            entry: StoredEnrolment = decode_stored(data, StoredEnrolment, f"{self._server}'s journal of enrolments")
            try:
                self._adopt(entry)
            except MisuseError as error:
                raise StorageError(f"{self._server}'s journal of enrolments cannot be read: {error}") from error
            if self.by_channel(entry.channel) != entry.client and self._listed.revocation(entry.channel) is None:
                _log.warning("%s: %r has enrolled with other keys than the list gives it", self._server, entry.name)

    @property
    def everybody(self) -> int | None:
        """How many clients there are; None where others may enrol."""
        return len(self._listed) if isinstance(self._policy, ListOnly) else None

    # ---- who is known

    def reload(self, listed: Registry) -> tuple[PublicIdentity, ...]:
        """Take another list in place of the operator's; its revocations hold for enrolled clients as well.

        Returns:
            The clients that are not known any more; their connections end (see `dismissal`).
        """
        known = [client for registry in (self._listed, self._enrolled) for client in registry]
        before = [client for client in known if self.by_channel(client.channel) == client]
        self._listed = listed
        self._sorted = None
        self.reloaded.set()
        return tuple(client for client in before if self.by_channel(client.channel) != client)

    def take_tokens(self, book: TokenBook) -> None:
        """Enrol with the tokens of another book from now on; enrolled clients stay, and a used token stays used."""
        self._policy = WithToken(book)

    def dismissal(self, client: PublicIdentity) -> Refusal | None:
        """Why a client is not known any more, under these keys and this name; None as long as it is."""
        if self.by_channel(client.channel) == client:
            return None
        return self._revoked(client.channel) or Refusal(f"{client.name!r} is not on {self._server}'s list any more")

    def by_channel(self, key: bytes) -> PublicIdentity | None:
        """The client that holds a channel key."""
        if self._listed.revocation(key) is not None:
            return None
        listed, enrolled = self._listed.by_channel(key), self._enrolled.by_channel(key)
        if listed is not None or enrolled is None:
            return listed
        return enrolled if self.by_name(enrolled.name) == enrolled else None

    def by_name(self, name: str) -> PublicIdentity | None:
        """The client of that name."""
        listed, enrolled = self._listed.by_name(name), self._enrolled.by_name(name)
        if listed is not None or enrolled is None or self._listed.revocation(enrolled.channel) is None:
            return listed or enrolled
        return None

    def identity(self, name: str) -> PublicIdentity:
        """The client of that name, which is connected.

        Raises:
            PeerViolationError: it is not known any more.
        """
        client = self.by_name(name)
        if client is None:
            raise PeerViolationError(name, f"is not known to {self._server} any more")
        return client

    def names(self) -> tuple[str, ...]:
        """The names of all clients that are known, sorted; made anew only after a change."""
        size = len(self._listed), len(self._enrolled)
        if self._sorted is None or self._sorted[0] != size:
            names = {client.name for client in self._listed}
            names |= {client.name for client in self._enrolled if client.name in self}
            self._sorted = size, tuple(sorted(names))
        return self._sorted[1]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.by_name(name) is not None

    # ---- who comes

    async def admit(self, key: bytes, payload: bytes) -> bytes | Refusal:
        """Decide about the holder of an authenticated channel key; the answer is its name, or why not."""
        try:
            credentials = Credentials.decode(payload)
        except MisuseError as error:
            return Refusal(str(error))
        if (client := self.by_channel(key)) is not None:
            return self._recognise(client, credentials)
        async with self._turn:  # of two that come at once, the second sees what the first got
            if (client := self.by_channel(key)) is not None:
                return self._recognise(client, credentials)
            newcomer = self._judge(key, credentials)
            if isinstance(newcomer, StoredEnrolment):
                await self._record(newcomer)
                return newcomer.name.encode()
            return newcomer

    def _recognise(self, client: PublicIdentity, credentials: Credentials) -> bytes | Refusal:
        """The answer to the holder of a known client's key: its name, or why not."""
        if (client.name, client.statement) == (credentials.name, credentials.statement):
            if not credentials.is_signed_for(client.channel):
                return UNSIGNED
            return client.name.encode()
        return Refusal(
            f"{self._server} knows your channel key as {client.name!r}, with statement key "
            f"{client.statement.hex()[:16]}…; you come as {credentials.name!r}, with "
            f"{credentials.statement.hex()[:16]}…: use the identity file as it was registered, or ask the operator to "
            "register you anew"
        )

    def _judge(self, key: bytes, credentials: Credentials) -> StoredEnrolment | Refusal:
        """Decide about an unknown key. A stranger who may not enrol learns nothing about names."""
        revoked = self._revoked(key)
        if revoked is not None:
            return revoked
        match self._policy:
            case ListOnly():
                return Refusal(
                    f"unknown client: key {key_prefix(key)} is not on {self._server}'s list; ask its operator to add it"
                )
            case WithToken(book=book):
                token = self._unspent(book, credentials.voucher)
            case Anyone():
                token = NO_VOUCHER
        if isinstance(token, Refusal):
            return token
        return self._objection(key, credentials) or StoredEnrolment(
            name=credentials.name, channel=key, statement=credentials.statement, token=token
        )

    def _revoked(self, key: bytes) -> Refusal | None:
        revocation = self._listed.revocation(key)
        if revocation is None:
            return None
        when = f" at {revocation.revoked_at}" if revocation.revoked_at else ""
        return Refusal(
            f"the key {key_prefix(key)} of {revocation.name!r} was revoked{when}; make new keys (`fsl-async keygen`) "
            f"and ask {self._server}'s operator to add them"
        )

    def _unspent(self, book: TokenBook, shown: bytes) -> bytes | Refusal:
        if not shown:
            return Refusal(f"unknown client: {self._server} enrols with a token; ask its operator for one")
        token = book.find(shown)
        if not token:
            return Refusal(f"the enrolment token is not one of {self._server}'s; check it, or ask its operator for one")
        if token in self._spent:
            return Refusal("the enrolment token has been used, with another key; ask the operator for a new one")
        return token

    def _objection(self, key: bytes, credentials: Credentials) -> Refusal | None:
        """Why a client that may enrol cannot do so with these credentials; its token stays unused in any case."""
        name = credentials.name
        if not same(credentials.task, self._task):
            return Refusal(
                f"{self._server} serves another task: its digest is {self._task.hex()[:16]}…, yours is "
                f"{credentials.task.hex()[:16]}…; use the servers' task file. You are not enrolled"
            )
        if name in RESERVED or name in self or name in self._enrolled or self._listed.was_revoked(name):
            return Refusal(
                f"the name {name!r} belongs to somebody else at {self._server}; make keys with a name of your own "
                "(`fsl-async keygen --name`), and ask for a new token if yours is used at the other server"
            )
        if self._enrolled.by_channel(key) is not None:  # under a name that the list has given to other keys since
            return Refusal(
                f"your channel key has enrolled at {self._server} before, under another name; make new keys "
                "(`fsl-async keygen`), or ask its operator to add yours to the list"
            )
        if not credentials.is_signed_for(key):
            return UNSIGNED
        if len(self._enrolled) >= MOST_ENROLLED:
            return Refusal(f"{self._server} has enrolled {MOST_ENROLLED:,} clients, and takes no more")
        return None

    async def _record(self, entry: StoredEnrolment) -> None:
        with trio.CancelScope(shield=True):
            await self._store.record(JOURNAL, msgspec.msgpack.encode(entry))
            self._adopt(entry)
        self._observe(Enrolled(client=entry.name, key=key_prefix(entry.channel)))

    def _adopt(self, entry: StoredEnrolment) -> None:
        self._enrolled.add(entry.client)
        if entry.token:
            self._spent.add(entry.token)
