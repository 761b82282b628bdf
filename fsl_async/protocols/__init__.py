"""The protocols as pure state machines.

`toss` opens a round, `assembly`, `ssa` and `psu` run on a server, `client` on a client, `epochs` on both;
`machine` is what they share.
"""

from fsl_async.protocols import assembly, client, epochs, machine, psu, ssa, toss

__all__ = ["assembly", "client", "epochs", "machine", "psu", "ssa", "toss"]
