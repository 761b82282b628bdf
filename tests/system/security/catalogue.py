"""Both catalogues in one place: malformed submissions, and servers with one step mutated.

`MALFORMATIONS` spoil an honest submission (see `forgeries`), `MUTATIONS` a server (see `byzantine`). Both are plain
values, so that other tests can run through them.
"""

from .byzantine import MUTATIONS, Account, Byzantine, Ending, Mutation, meet
from .forgeries import MALFORMATIONS, Forgery, Judges, Malformation, Workshop
from .repeaters import REPEATERS

__all__ = [
    "MALFORMATIONS",
    "MUTATIONS",
    "REPEATERS",
    "Account",
    "Byzantine",
    "Ending",
    "Forgery",
    "Judges",
    "Malformation",
    "Mutation",
    "Workshop",
    "meet",
]
