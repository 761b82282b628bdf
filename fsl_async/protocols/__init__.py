"""The protocols as pure state machines.

`toss` opens a round, `assembly`, `round` and `alignment` run on a server, `client` on a client, `session` on both;
`machine` is what they share.
"""

from fsl_async.protocols import alignment, assembly, client, machine, round, session, toss

__all__ = ["alignment", "assembly", "client", "machine", "round", "session", "toss"]
