"""A laboratory for protocols: deterministic worlds of parties in which things go wrong.

    from parties.testing import AtTime, Chart, Crash
    from parties.testing.world import world

    async with world(task, model, seed=7, faults=[Crash("S0", AtTime(2.0), down=5.0)]) as made:
        made.start("anna", take_part)       # take_part(client) is what a client does in each of its lives
        await made.wait_settled(1)
    print(Chart.of(made))

Tests have the same as the fixture `fsl_world`; see docs/testing.md. `laboratory` is such a world for actors and
machines of your own, in tests the fixture `fsl_laboratory`. A name's module is imported when the name is first used.
"""

from typing import TYPE_CHECKING

from fsl_async.lazy_names import lazy

if TYPE_CHECKING:
    from fsl_async.randomness import SeededSource as SeededSource
    from parties.simulation.scheduling import seeded_scheduling as seeded_scheduling
    from parties.testing.blobs import BlobDisk as BlobDisk, BlobFaults as BlobFaults, SimulatedBlobs as SimulatedBlobs
    from parties.testing.chart import Chart as Chart
    from parties.testing.disk import Disk as Disk, DiskFaults as DiskFaults, DiskStore as DiskStore
    from parties.testing.faults import (
        AtCommit as AtCommit,
        AtPeerTransition as AtPeerTransition,
        AtSend as AtSend,
        AtTime as AtTime,
        AtTransition as AtTransition,
        AtWrite as AtWrite,
        BrokenWrite as BrokenWrite,
        CALM as CALM,
        Crash as Crash,
        Cut as Cut,
        Delay as Delay,
        FullDisk as FullDisk,
        Partition as Partition,
        SkewedClock as SkewedClock,
        SlowDisk as SlowDisk,
        SpoiltBlobs as SpoiltBlobs,
    )
    from parties.testing.lab import Laboratory as Laboratory, every_crash as every_crash, laboratory as laboratory
    from parties.testing.round_faults import (
        AbortRound as AbortRound,
        CloseNow as CloseNow,
        Fault as Fault,
        StoppedWorker as StoppedWorker,
    )
    from parties.testing.processes import Ended as Ended
    from parties.testing.surroundings import HorizonError as HorizonError
    from parties.testing.world import World as World
else:
    __all__, __getattr__, __dir__ = lazy(__name__, __file__)
