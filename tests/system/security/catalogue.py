"""All attacks, in one place: malformed submissions, and servers that lie to the other server or to clients.

`MALFORMATIONS` falsify an honest submission (see `malformations`), `SERVER_ATTACKS` are malicious servers (see
`byzantine`): `MUTATIONS` with what must become of the honest server, `LIES_TO_CLIENTS` and
`WRONG_ANSWERS` with what callers make of them.
"""

from .byzantine import Byzantine
from .client_attacks import LIES_TO_CLIENTS, WRONG_ANSWERS
from .forgeries import Forgery, Malformation, Workshop
from .malformations import MALFORMATIONS
from .peer_attacks import ABOUT_PIECES, MUTATIONS

__all__ = [
    "ABOUT_PIECES",
    "LIES_TO_CLIENTS",
    "MALFORMATIONS",
    "MUTATIONS",
    "SERVER_ATTACKS",
    "WRONG_ANSWERS",
    "Byzantine",
    "Forgery",
    "Malformation",
    "Workshop",
]

SERVER_ATTACKS: dict[str, type[Byzantine]] = (
    {mutation.name: mutation.mutant for mutation in MUTATIONS} | LIES_TO_CLIENTS | WRONG_ANSWERS
)
