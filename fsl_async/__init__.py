"""Federated submodel learning on two servers: the mathematics and the protocols, without input or output.

The names below are what a user of the library writes; parties and channels are in the packages `parties` and
`transport`.
"""

from fsl_async.errors import ChannelError, FslError, MisuseError, PeerViolationError, StorageError
from fsl_async.ring import Ring
from fsl_async.task import Dense, Sparse, Task

__all__ = [
    "ChannelError",
    "Dense",
    "FslError",
    "MisuseError",
    "PeerViolationError",
    "Ring",
    "Sparse",
    "StorageError",
    "Task",
]
