"""The protocols as pure state machines: `toss` opens a round, `assembly` and `round` run on a server, `client` on a client."""

from fsl_async.protocols import assembly, client, machine, round, toss

__all__ = ["assembly", "client", "machine", "round", "toss"]
