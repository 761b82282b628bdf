"""One round on one server: the machine of `fsl_async.protocols.round`, fed, recorded and obeyed.

Rules: an event is recorded before the new state is adopted, and the state adopted before its effects are performed; a
peer's message that is ahead of us waits its turn; computation happens in tasks of the round's nursery and comes back
as events, so only the server's own task changes the state. After a restart the recorded events are taken again, and
the effects of the state they lead to are performed again.
"""

from __future__ import annotations
