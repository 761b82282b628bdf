"""How a client enters a round: the one it is in, or the first after the one that it has submitted to.

Rounds that servers announce are compared with what this client knows before they are believed.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Final, assert_never

from fsl_async.config import RoundConfig
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.protocols import client as protocol
from fsl_async.protocols import entry
from fsl_async.protocols.entry import Announced, HalfEntered, Inside, Leave, Outside, Undrawn
from fsl_async.protocols.ssa.client import Submitted
from fsl_async.task import ProtocolName, Task
from fsl_async.wire.messages import Enter, Opened
from parties.client.downloads import Unions
from parties.client.outcomes import Outcomes, in_doubt
from parties.client.participation import Participation
from parties.client.requests import Requests, task_difference
from parties.client.session import OwnSession, TreeSession
from parties.client.setup import ClientSetup
from parties.client.state import Pending
from parties.client.submission import Draft
from parties.errors import BeganAnewError, NotDrawnError, RoundClosedError


class Announcements:
    """Where one client hears of rounds."""

    def __init__(self, setup: ClientSetup, requests: Requests) -> None:
        self._setup = setup
        self._requests = requests

    async def announced(
        self, server: int, after: int, session: OwnSession, last: RoundConfig | None = None
    ) -> Announced:
        """Wait for one server's announcement of an open round with a number above `after`.

        Args:
            server: 0 or 1.
            after: see above.
            session: this client's.
            last: the last round in which this client took part; neither it nor an earlier one is announced anew.

        Raises:
            BeganAnewError: neither server knows that round.
            MisuseError: the round is of another task.
            PeerViolationError: it is not of the pinned servers, or not of this client's session; or the server alone
                does not know the client's last round, or announces it, or one before it, anew.
        """
        known = last.round_id() if last else b""
        opened = (await self._requests.ask(server, Enter(after, known), (), Opened)).message
        if last and opened.strange:
            raise await self._strange(server, last)
        config = RoundConfig.parse(opened.config, f"S{server}")
        if last and config.number <= last.number and config.round_id() != known:
            raise PeerViolationError(
                f"S{server}",
                f"announces a round {config.number} that this client does not know, after round {last.number}: its "
                "store was put back from a copy",
            )
        if config.number <= after:
            raise PeerViolationError(
                f"S{server}", f"announces round {config.number}, and was asked for one after round {after}"
            )
        if config.task != self._setup.task:
            raise MisuseError(task_difference(server, self._setup.task, config.task))
        if config.servers != tuple(identity.keys for identity in self._setup.servers):
            raise PeerViolationError(f"S{server}", "announces a round with other server keys than the pinned ones")
        if isinstance(session, TreeSession) and session.stands:
            _check_session(server, config, session)
        if not opened.drawn and config.sample is None:
            raise PeerViolationError(
                f"S{server}", "says that this client was not drawn, but rounds of this task are for every client"
            )
        return Announced(server, config, opened.drawn)

    async def by_both(
        self, after: int, session: OwnSession, last: RoundConfig | None = None
    ) -> tuple[Announced, Announced]:
        """`announced` of both servers at once: where clients are drawn, both must be asked to draw this one."""
        return await self._requests.both(lambda server: self.announced(server, after, session, last))

    async def _strange(self, server: int, last: RoundConfig) -> BeganAnewError | PeerViolationError:
        """What it means that a server does not know a round; one server's word is not enough to forget the round."""
        other = await self._requests.ask(1 - server, Enter(0, last.round_id()), (), Opened)
        if other.message.strange:
            return BeganAnewError(last.number)
        return PeerViolationError(
            f"S{server}",
            f"does not know round {last.number} any more, which it had announced and S{1 - server} knows: its store "
            "was lost, or put back from a copy",
        )

    async def still_open(self, config: RoundConfig, session: OwnSession) -> bool:
        """Whether both servers still announce a round; while none is open, wait for the next one to be announced.

        A server that refuses to announce anything, which no honest one does, does not announce this one either.
        """
        try:
            if config.sample is not None:
                announced = await self.by_both(config.number - 1, session, config)
                return all(each.config.round_id() == config.round_id() for each in announced)
            for server in (0, 1):
                heard = await self.announced(server, config.number - 1, session, config)
                if heard.config.round_id() != config.round_id():
                    return False
        except (RoundClosedError, BeganAnewError):
            return False
        return True


def _check_session(server: int, config: RoundConfig, session: TreeSession) -> None:
    """Refuse a round whose seed, or whose bins, are not those that the session's trees were planted for."""
    begun = session.planting.config
    if (config.session, config.hash_seed) != (begun.session, begun.hash_seed):
        raise PeerViolationError(
            f"S{server}",
            f"announces {'another' if config.session == begun.session else f'round {config.session} and its'} seed, "
            f"but this session began with the seed of round {begun.session}; `forget_session` begins a new one",
        )
    if any(bins and bins != planted for bins, planted in zip(config.bins, begun.bins, strict=True)):
        raise PeerViolationError(
            f"S{server}",
            f"announces {list(config.bins)} bins in a segment of the sparse blocks, but this session's trees have "
            f"{list(begun.bins)}; `forget_session` begins a new one",
        )


RETRIEVING: Final[Set[ProtocolName]] = frozenset({"ssa", "psr"})
SUBMITTING: Final[Set[ProtocolName]] = frozenset({"ssa"})
UNITING: Final[Set[ProtocolName]] = frozenset({"psu"})
ANY: Final[Set[ProtocolName]] = RETRIEVING | UNITING
"""The protocols of the rounds in which a client retrieves, submits, finds a union, or does none of that."""


@dataclass(eq=False, repr=False)
class RoundEntry:
    """Brings one client into open rounds."""

    _task: Task
    _participation: Participation
    _announcements: Announcements
    _unions: Unions
    _outcomes: Outcomes

    async def enter(self, wanted: Set[ProtocolName], *, wait: bool) -> RoundConfig:
        """Be in an open round of a wanted protocol, with the unions downloaded on which it is aligned.

        Args:
            wanted: what the round may run.
            wait: whether to wait for the next round where the open one is not for this call.

        Raises:
            MisuseError: the open round is of another protocol, or this client has submitted to it.
            NotDrawnError: the open round is for others, that were drawn.
            AlreadyCountedError: a pending submission was counted.
            FslError: as `Outcomes.learn`, of a pending submission; or as `Announcements.announced`.
        """
        while True:
            config = await self._entered(wait=wait)
            if config is None:  # with `wait`, rounds that are for others are passed over
                continue
            if config.protocol in wanted:
                await self._unions.of_round(config)
                return config
            if not await self._still_open(config):  # one that this client has entered is taken to be, until it matters
                await self._participation.leave(Leave())
                continue
            if config.protocol == "psu":
                raise MisuseError(f"round {config.number} finds the union first: call `unite` with this client's rows")
            if self._task.selection == "fixed":
                raise MisuseError("the union of this session has been found; retrieve and submit rows that are in it")
            if not wait:
                raise MisuseError(
                    f"round {config.number} finds no union: `retrieve` and `submit` take part in it, and "
                    "`unite(rows, wait=True)` waits for a round that does"
                )
            await self._participation.leave(Leave())

    async def _entered(self, *, wait: bool) -> RoundConfig | None:
        """The open round that this client is in; None once the next one was announced, for it or for others."""
        here = self._participation
        next_announced: tuple[Announced, ...] = ()
        if isinstance(here.submission, Pending):
            await self._settle_pending(here.submission.draft)
        match here.round:
            case protocol.ClientRound(entry=Inside(config=config), ssa=Submitted()):
                next_announced = () if wait else await self._round_after(config)
                if isinstance(here.session, TreeSession) and not here.session.stands:
                    await self._outcomes.learn()  # whether its trees are a session now
            case protocol.ClientRound(entry=Inside(config=config)):
                if protocol.goes_on(here.round) or await self._still_open(config):
                    return config
        if not isinstance(here.round.entry, Outside):
            await here.leave(Leave())
        for announced in next_announced:
            here.announced(announced)
        while isinstance(here.round.entry, Outside | HalfEntered):
            for awaited in entry.effects(here.round.entry, drawn=self._task.draws):
                await self._hear(awaited)
        if isinstance(here.round.entry, Undrawn):
            config = here.round.entry.config
            await here.leave(Leave())
            if not wait and config.sample is not None:
                raise NotDrawnError(config.number, config.sample.asked, config.sample.size)
        return None

    async def _still_open(self, config: RoundConfig) -> bool:
        return await self._announcements.still_open(config, self._participation.session)

    async def _round_after(self, config: RoundConfig) -> tuple[Announced, ...]:
        """What S0 announces after the round that this client has submitted to; that one may still be open for long.

        Where clients are drawn, both servers are asked: a client that asks one alone is not drawn.

        Raises:
            MisuseError: it is open.
        """
        session, after = self._participation.session, config.number - 1
        announced: tuple[Announced, ...]
        if self._task.draws:
            announced = await self._announcements.by_both(after, session, config)
        else:
            announced = (await self._announcements.announced(0, after, session, config),)
        if any(each.config.round_id() == config.round_id() for each in announced):
            raise MisuseError(
                f"round {config.number} is open, and this client has submitted to it: `outcome` waits for its end, and "
                "the same call with wait=True for the round after it"
            )
        return announced

    async def _hear(self, awaited: entry.Hear | entry.HearBoth) -> None:
        """Wait for the announcement of the server that is behind, or of both."""
        here = self._participation
        match awaited:
            case entry.Hear(server=server, after=after):
                here.announced(await self._announcements.announced(server, after, here.session, here.last_round))
            case entry.HearBoth(after=after):
                for announced in await self._announcements.by_both(after, here.session, here.last_round):
                    here.announced(announced)
            case _:
                assert_never(awaited)

    async def _settle_pending(self, draft: Draft) -> None:
        """Before another round is entered: learn what became of a pending submission whose round is gone.

        Raises:
            MisuseError: its round is still open.
            FslError: as `Outcomes.refuse_counted`; the next call continues without the submission.
        """
        with in_doubt(draft.config):
            if await self._still_open(draft.config):
                raise MisuseError(
                    f"a submission to round {draft.config.number} is pending, and the round is open: `resume` "
                    "finishes it"
                )
        await self._outcomes.refuse_counted(draft)
