"""What the next round runs, and on which rows: all of them, or the union that a round of its own has found.

With `alignment="all"` the state stays `Everything`. With `alignment="union"` a union round leads from `Seeking` to
`Aligned`; after a round on it the next union is sought (`selection="adaptive"`), or the union stays, because the trees
do (`selection="fixed"`). A task with `protocol="psu"` seeks one union after the other: from `Seeking` to `Found`, which
names the round that has found the last one, for clients to read.

Both servers run this machine. They agree because they agree on every round's outcome, of which the union is part. A
round that finds a union is itself one of `ssa`: an aggregation of random numbers.

The states and events, the rules and the effects are in `transitions`.

Source: paper §"Optimisations" (PSU); design §7.
"""

from fsl_async.protocols.psu.transitions import (
    ACCEPTS as ACCEPTS,
    MACHINE as MACHINE,
    TRANSITIONS as TRANSITIONS,
    Aligned as Aligned,
    Alignment as Alignment,
    AlignmentEvent as AlignmentEvent,
    Everything as Everything,
    Found as Found,
    MainSettled as MainSettled,
    Next as Next,
    Seeking as Seeking,
    UnionFound as UnionFound,
    UnionLost as UnionLost,
    UnionPublished as UnionPublished,
    begin as begin,
    effects as effects,
    step as step,
)
