"""The auction under test: one seed gives one transcript, and no crash, at whatever moment, changes who wins.

Run it with `pytest -p fsl_async.pytest_plugin auction_test.py`.
"""

import auction
import pytest
import trio
from bidder import Bidder

from parties import Peer
from parties.testing import Chart, Cut, SeededSource, every_crash
from transport import KeyPair

ANN, BOB = (KeyPair.generate(SeededSource(1, name)) for name in ("ann", "bob"))
MACHINES = {"auction": auction}


def bidders() -> dict[str, Bidder]:
    """Ann listens and bids 30, bob dials and bids 20."""
    return {
        "ann": Bidder(30, ANN, Peer("bob", BOB.public), "ann"),
        "bob": Bidder(20, BOB, Peer("ann", ANN.public, "ann")),
    }


@pytest.mark.trio
async def test_one_seed_gives_one_transcript(fsl_laboratory, autojump_clock):
    """Nothing goes wrong, twice."""
    transcripts = []
    for _ in range(2):
        async with fsl_laboratory(bidders(), MACHINES) as lab:
            await lab.wait_told()
            transcripts.append([f"{note.sender} → {note.receiver}: {note.message!r}" for _, note in lab.transcript])
            print(Chart.of(lab))
    assert transcripts[0] == transcripts[1]


@pytest.mark.trio
@pytest.mark.fsl_seeds(3)
@pytest.mark.parametrize("fault", [*every_crash(["ann", "bob"], MACHINES), Cut("bob", 1, True, 1_300, True)], ids=str)
async def test_the_higher_bid_wins_whatever_happens(fsl_laboratory, autojump_clock, fault):
    """Either one dies around each transition, or a connection is cut; and both say the same afterwards."""
    async with fsl_laboratory(bidders(), MACHINES, faults=[fault]) as lab:
        await lab.wait_told()
        await trio.sleep(30)
        assert {told for _, _, told in lab.told} == {"sold to ann for 30"}
        assert lab.injector.fired == [fault], "it never happened"
        assert not lab.ended
