"""Federated submodel learning on two servers: the mathematics and the protocols, without input or output.

The names below are what a user of the library writes; parties and channels are in the packages `parties` and
`transport`. What computes is imported when it is first used; the errors, which everybody needs, are there at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fsl_async.errors import ChannelError, FslError, MisuseError, PeerViolationError, StorageError

if TYPE_CHECKING:
    from fsl_async.ring import Ring, RingIntegers
    from fsl_async.task import Dense, Sparse, Task
else:
    _PLACES = {
        "Dense": "fsl_async.task",
        "Ring": "fsl_async.ring",
        "RingIntegers": "fsl_async.ring",
        "Sparse": "fsl_async.task",
        "Task": "fsl_async.task",
    }

    def __getattr__(name: str) -> object:
        """Import a public name from where it is."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(_PLACES[name]), name)
        return found

    def __dir__() -> list[str]:
        """The public names, imported or not."""
        return __all__


__all__ = [
    "ChannelError",
    "Dense",
    "FslError",
    "MisuseError",
    "PeerViolationError",
    "Ring",
    "RingIntegers",
    "Sparse",
    "StorageError",
    "Task",
]
