"""A laboratory for protocols: deterministic worlds of parties in which things go wrong.

    from parties.testing import AtTime, Chart, Crash
    from parties.testing.world import world

    async with world(task, model, seed=7, faults=[Crash("S0", AtTime(2.0), down=5.0)]) as made:
        made.start("anna", take_part)       # take_part(client) is what a client does in each of its lives
        await made.wait_settled(1)
    print(Chart.of(made))

Tests have the same as the fixture `fsl_world`; see docs/testing.md. A name's module is imported when the name is first
used: pytest loads the plugin in every project, also where nobody asks for a world.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsl_async.randomness import SeededSource
    from parties.server.server import Schedule
    from parties.simulation.scheduling import seeded_scheduling
    from parties.testing.chart.chart import Chart
    from parties.testing.disk import Disk, DiskStore, Trouble
    from parties.testing.faults import (
        CALM,
        AtCommit,
        AtPeerTransition,
        AtSend,
        AtTime,
        AtTransition,
        AtWrite,
        BrokenWrite,
        Crash,
        Cut,
        Delay,
        Fault,
        FullDisk,
        GiveUp,
        Partition,
        SkewedClock,
        SlowDisk,
    )
    from parties.testing.world import Ended, HorizonError, World
else:
    _PLACES = {
        "fsl_async.randomness": ["SeededSource"],
        "parties.simulation.scheduling": ["seeded_scheduling"],
        "parties.server.server": ["Schedule"],
        "parties.testing.chart.chart": ["Chart"],
        "parties.testing.disk": ["Disk", "DiskStore", "Trouble"],
        "parties.testing.faults": [
            "CALM",
            "AtCommit",
            "AtPeerTransition",
            "AtSend",
            "AtTime",
            "AtTransition",
            "AtWrite",
            "BrokenWrite",
            "Crash",
            "Cut",
            "Delay",
            "Fault",
            "FullDisk",
            "GiveUp",
            "Partition",
            "SkewedClock",
            "SlowDisk",
        ],
        "parties.testing.world": ["Ended", "HorizonError", "World"],
    }

    def __getattr__(name: str) -> object:
        """Import a public name from where it is."""
        for module, names in _PLACES.items():
            if name in names:
                globals()[name] = found = getattr(import_module(module), name)
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """The public names, imported or not."""
        return __all__


__all__ = [
    "CALM",
    "AtCommit",
    "AtPeerTransition",
    "AtSend",
    "AtTime",
    "AtTransition",
    "AtWrite",
    "BrokenWrite",
    "Chart",
    "Crash",
    "Cut",
    "Delay",
    "Disk",
    "DiskStore",
    "Ended",
    "Fault",
    "FullDisk",
    "GiveUp",
    "HorizonError",
    "Partition",
    "Schedule",
    "SeededSource",
    "SkewedClock",
    "SlowDisk",
    "Trouble",
    "World",
    "seeded_scheduling",
]
