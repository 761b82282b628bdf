"""The protocols as pure state machines.

`toss` opens a round; `ssa` and `psr` are what a round runs on a server, and `psu` says what comes next, and on which
rows; `assembly` runs on a server for each request, `epochs` on both sides. A client goes through `entry`, `psr.client`,
`ssa.client` and `psu.client`; `client` says how they go together. `partials` is of one server alone: the sum
of a round on several workers. `ending` is what rounds of all protocols have in common, `machine` what all machines
have.
"""

from fsl_async.protocols import assembly, client, ending, entry, epochs, machine, partials, psr, psu, ssa, toss

__all__ = ["assembly", "client", "ending", "entry", "epochs", "machine", "partials", "psr", "psu", "ssa", "toss"]
