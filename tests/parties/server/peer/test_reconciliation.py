"""Servers that meet: whose store was put back is found out before anything is said, and the other one keeps running."""

from dataclasses import replace

import pytest
import trio

from fsl_async.errors import leaves
from fsl_async.protocols.ending import Step
from fsl_async.protocols.reconciliation import Agreed, Apart, Behind, PeerBehind, compare
from fsl_async.wire.messages import Known
from parties.events import PeerMet, ServerEvent, Warned
from parties.server.server import Server
from parties.storage.store import Change, MemoryStore, StoreLostError
from tests.support.cases import in_turn, one_in
from tests.support.shop import Shop, all_take_part, assert_exact, opened
from transport import Channel, MemoryNetwork, VersionMismatchError

ONE, TWO, THREE = (bytes([number]) * 32 for number in (1, 2, 3))


# ---- whose store is behind


OPEN = Known(settled=1, last=ONE, present=TWO, said=Step.TOSS_REVEAL, heard=Step.TOSS_REVEAL, toss=ONE, peer_toss=TWO)
MIRROR = Known(settled=1, last=ONE, present=TWO, said=Step.TOSS_REVEAL, heard=Step.TOSS_REVEAL, toss=TWO, peer_toss=ONE)


def known(base: Known, **changes: object) -> Known:
    return Known(**{name: changes.get(name, getattr(base, name)) for name in base.__struct_fields__})


AGREED = {
    "at the beginning": (Known(said=Step.TOSS_COMMITMENT, toss=ONE), Known(said=Step.TOSS_COMMITMENT, toss=TWO)),
    "in an open round": (OPEN, MIRROR),
    "the other has said more": (OPEN, known(MIRROR, said=Step.ROSTER)),
    "the other has settled the round": (
        known(OPEN, said=Step.CONCLUSION, heard=Step.SHARE),
        Known(settled=2, last=TWO, said=Step.TOSS_COMMITMENT),
    ),
    "the other has given the round up": (OPEN, Known(settled=2, last=TWO, aborted=True, said=Step.TOSS_COMMITMENT)),
    "and it was still tossed for": (
        known(OPEN, present=b""),
        Known(settled=2, last=TWO, aborted=True, said=Step.TOSS_COMMITMENT),
    ),
    "the other rests": (OPEN, Known(settled=1, last=ONE, said=Step.CONCLUSION)),
    "equal lists of who asked": (
        known(OPEN, present=b"", said=Step.ASKED, asked=THREE),
        known(MIRROR, said=Step.ASKED, heard=Step.ASKED, asked=ONE, peer_asked=THREE),
    ),
    "equal lists": (known(OPEN, said=Step.ROSTER, roster=THREE), known(MIRROR, heard=Step.ROSTER, peer_roster=THREE)),
}
BEHIND = {
    "two rounds back": (Known(), Known(settled=2, last=TWO), "2 rounds are over, and it knows of 0"),
    "the last round is tossed for anew": (
        known(OPEN, present=b"", said=Step.TOSS_COMMITMENT),
        Known(settled=2, last=TWO),
        "round 2 is done, and it does not know that it revealed its share",
    ),
    "the last round is open again": (OPEN, Known(settled=2, last=TWO), "does not know that it revealed its share"),
    "another round of that number": (
        known(OPEN, present=THREE),
        Known(settled=2, last=TWO, aborted=True),
        "it has opened another round of that number",
    ),
    "another half of the seed": (known(OPEN, toss=THREE), MIRROR, "it has tossed for round 2 before"),
    "what the other heard is not known": (
        OPEN,
        known(MIRROR, heard=Step.COMMITMENT),
        "in round 2 it has said its commitment before, and does not know more than its toss reveal",
    ),
    "another list": (
        known(OPEN, said=Step.ROSTER, roster=ONE),
        known(MIRROR, heard=Step.ROSTER, peer_roster=TWO),
        "it has sent another list of clients before",
    ),
    "another list of who asked": (
        known(OPEN, present=b"", said=Step.ASKED, asked=ONE),
        known(MIRROR, present=b"", heard=Step.ASKED, peer_asked=TWO),
        "for round 2 it has sent another list of who asked before",
    ),
    "it gathers again": (
        known(OPEN, present=b""),
        known(MIRROR, heard=Step.ASKED, peer_asked=TWO),
        "in round 2 it has said its asker list before, and does not know more than its toss reveal",
    ),
    "the next round is tossed for already": (
        known(OPEN, said=Step.SHARE),
        Known(settled=2, last=TWO, said=Step.TOSS_COMMITMENT, peer_toss=ONE),
        "it has tossed for round 3 before, and does not know that round 2 is over",
    ),
    "aborted after its commitment": (
        Known(settled=2, last=TWO, aborted=True),
        known(MIRROR, heard=Step.COMMITMENT),
        "it aborted a round in which it had committed to its share",
    ),
    "aborted what is done": (
        Known(settled=2, last=TWO, aborted=True),
        Known(settled=2, last=TWO),
        "it aborted round 2, which is done",
    ),
}


@pytest.mark.parametrize("case", AGREED)
def test_what_is_only_under_way_makes_nobody_behind(case):
    ours, theirs = AGREED[case]
    assert compare(ours, theirs) == Agreed()
    assert compare(theirs, ours) == Agreed()


@in_turn("case", BEHIND)
def test_both_find_the_same_store_behind(case):
    old, new, words = BEHIND[case]
    verdict = compare(old, new)
    assert isinstance(verdict, Behind)
    assert words in verdict.why
    assert compare(new, old) == PeerBehind(verdict.why)


def test_stores_of_other_rounds_are_told_apart():
    ours, theirs = Known(settled=3, last=ONE), Known(settled=3, last=TWO)
    assert compare(ours, theirs) == compare(theirs, ours) == Apart()


# ---- servers


class Camera(MemoryStore):
    """A store of which every moment is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[MemoryStore] = []

    async def commit(self, *changes: Change) -> None:
        await super().commit(*changes)
        moment = MemoryStore()
        moment._journals.update({name: list(entries) for name, entries in self._journals.items()})
        moment._blobs.update(self._blobs)
        self.moments.append(moment)


class Site:
    """Two servers, of which one is started again from another store."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.shop = Shop.in_memory(nursery)
        self.nursery = nursery
        self.told: list[list[ServerEvent]] = [[], []]
        self.ended: list[list[BaseException]] = [[], []]
        self.camera = Camera()
        self.scopes = [trio.CancelScope(), trio.CancelScope()]

    async def open(self, again: int, releases: tuple[str, str] = ("", "")) -> None:
        for index, release in enumerate(releases):
            changes = {"store": self.camera} if index == again else {}
            setup = replace(self.shop.setup_of(index), observe=self.told[index].append, release=release, **changes)
            self.shop.servers.append(Server(setup))
            self.shop.addresses.append(await self.nursery.start(self.run, index))

    async def run(self, index: int, *, task_status: trio.TaskStatus[str]) -> None:
        with self.scopes[index]:
            try:
                await self.shop.servers[index].run(task_status=task_status)
            except Exception as error:
                self.ended[index] += leaves(error)

    async def start_again(self, index: int, store: MemoryStore) -> None:
        self.scopes[index].cancel()
        await trio.sleep(1)
        self.scopes[index] = trio.CancelScope()
        self.shop.servers[index] = Server(replace(self.shop.servers[index].setup, store=store))
        await self.nursery.start(self.run, index)

    async def rounds(self, count: int, *names: str) -> None:
        async with opened(*map(self.shop.client, names)) as clients:
            for _ in range(count):
                await all_take_part(*clients)
                with trio.fail_after(60):
                    assert_exact(await self.shop.finish_round(), *names)

    def warnings(self, index: int) -> list[str]:
        return [said.explanation for said in self.told[index] if isinstance(said, Warned) and said.about == "peer"]


def tells_whose_store_it_is(site: Site, index: int) -> None:
    """It has ended by itself, the other one has not, and both name the same store, and on whose word."""
    (error,) = site.ended[index]
    assert isinstance(error, StoreLostError)
    assert f"S{1 - index} states that the store of S{index} is older than what S{index} has said" in str(error)
    assert f"S{index} cannot check that. The mark beside the store does not say so" in str(error)
    assert f"do not begin anew on S{1 - index}'s word alone" in str(error)
    assert "at fault" not in str(error)
    assert site.ended[1 - index] == []
    (warning,) = site.warnings(1 - index)
    assert f"by what S{index} states, the store of S{index} is older than what S{index} has said" in warning


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("settled", [1, 2, 3])
async def test_a_server_that_has_lost_its_store_is_the_one_that_ends(nursery, autojump_clock, settled, index):
    site = Site(nursery)
    await site.open(index)
    await site.rounds(settled, "anna", "ben")
    await site.start_again(index, MemoryStore())
    await trio.sleep(30)
    tells_whose_store_it_is(site, index)
    newest = site.camera.moments[-1]
    await site.start_again(index, newest)  # the right one is put back
    await site.rounds(1, "anna", "ben")
    assert len(site.warnings(1 - index)) == 1
    nursery.cancel_scope.cancel()


MOMENTS = 60
"""More than there are in a round and the next one's toss."""


@pytest.mark.parametrize(("moment", "index"), one_in(2, range(0, MOMENTS, 3), (0, 1)))
async def test_a_store_of_any_earlier_moment_is_found_out_or_does_no_harm(nursery, autojump_clock, moment, index):
    """Whatever was said in between: the other server never ends, and no violation is laid to anybody."""
    site = Site(nursery)
    await site.open(index)
    await site.rounds(1, "anna", "ben")
    if moment >= len(site.camera.moments):
        nursery.cancel_scope.cancel()
        return
    await site.start_again(index, site.camera.moments[moment])
    await trio.sleep(30)
    if site.ended[index]:
        tells_whose_store_it_is(site, index)
    else:
        await site.rounds(1, "anna", "ben", "carol")
        assert site.warnings(1 - index) == []
    assert sum(isinstance(said, PeerMet) for said in site.told[1 - index]) > 1
    nursery.cancel_scope.cancel()


async def test_servers_whose_stores_are_of_different_rounds_tell_each_other(nursery, autojump_clock):
    sites = [Site(nursery), Site(nursery)]
    sites[1].shop.identities = sites[0].shop.identities
    for site in sites:
        await site.open(1)
        await site.rounds(1, "anna", "ben")
    await sites[0].start_again(1, sites[1].camera.moments[-1])
    await trio.sleep(30)
    assert sites[0].ended == [[], []]
    for index in (0, 1):  # each sees it by itself, and ends the connection at the same time as the other
        assert any("the stores of S" in warning for warning in sites[0].warnings(index))
    nursery.cancel_scope.cancel()


async def test_servers_that_cannot_meet_say_so_once_and_loudly(nursery, autojump_clock):
    """Two releases, say: S1 tells its operator why no round opens."""
    site = Site(nursery)
    site.shop.transports = (site.shop.transports[0], Refusing())
    await site.open(0)
    await trio.sleep(60)
    assert site.warnings(1) == ["S0 cannot be met: it speaks version 2, and this is version 1"]
    nursery.cancel_scope.cancel()


class Refusing(MemoryNetwork):
    async def dial(self, *words: object) -> Channel:
        raise VersionMismatchError("it speaks version 2, and this is version 1")


async def test_servers_of_different_releases_work_together_and_warn_their_operators_once(nursery, autojump_clock):
    site = Site(nursery)
    await site.open(0, releases=("2.1", "2.2"))
    await site.rounds(1, "anna", "ben", "carol")
    assert site.warnings(0) == ["S1 runs release '2.2', and S0 '2.1': install the same on both"]
    assert site.warnings(1) == ["S0 runs release '2.1', and S1 '2.2': install the same on both"]
    nursery.cancel_scope.cancel()
