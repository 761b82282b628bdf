"""Federated submodel learning on two servers: the mathematics and the protocols, without input or output.

The names below are what a user of the library writes; parties and channels are in the packages `parties` and
`transport`. A name's module is imported when the name is first used.
"""

from typing import TYPE_CHECKING

from fsl_async.lazy_names import lazy

if TYPE_CHECKING:
    from fsl_async import udpf as udpf
    from fsl_async.errors import (
        BoundExceededError as BoundExceededError,
        ChannelError as ChannelError,
        FslError as FslError,
        MisuseError as MisuseError,
        PeerViolationError as PeerViolationError,
        StorageError as StorageError,
        WrongAnswerError as WrongAnswerError,
    )
    from fsl_async.privacy.accounting import Privacy as Privacy
    from fsl_async.ring import Ring as Ring, RingIntegers as RingIntegers
    from fsl_async.server_rules import Adam as Adam, Momentum as Momentum, RoundFacts as RoundFacts, Sgd as Sgd
    from fsl_async.task import Dense as Dense, Sparse as Sparse, Task as Task
    from fsl_async.wire.codec import Message as Message, MessageSet as MessageSet
else:
    __all__, __getattr__, __dir__ = lazy(__name__, __file__)
