"""The rounds that servers announce, each compared with what this client knows before it is believed."""

from __future__ import annotations

from fsl_async.config import RoundConfig
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.protocols.entry import Announced
from fsl_async.wire.messages import Enter, Opened
from parties.client.requests import Requests, task_difference
from parties.client.session import OwnSession, TreeSession
from parties.client.setup import ClientSetup
from parties.errors import BeganAnewError, RoundClosedError


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
                f"S{server}", "says that this client is not drawn for a round that is for everybody"
            )
        return Announced(server, config, opened.drawn)

    async def by_both(
        self, after: int, session: OwnSession, last: RoundConfig | None = None
    ) -> tuple[Announced, Announced]:
        """Wait for both servers' announcements at once: where clients are drawn, both must be asked to draw this one.

        Args:
            after: as in `announced`, and so are the others and the errors.
            session: see there.
            last: see there.
        """
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
    """Refuse a round whose seed is not the one that the session's trees were planted for."""
    begun = session.planting.config
    if (config.session, config.hash_seed) != (begun.session, begun.hash_seed):
        raise PeerViolationError(
            f"S{server}",
            f"announces the seed of round {config.session}, this session's is of round {begun.session}"
            f"{', and another one' if config.session == begun.session else ''}; `forget_session` begins a new one",
        )
