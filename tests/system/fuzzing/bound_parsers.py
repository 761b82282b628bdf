"""What proves that an update is within the bound: a client's private part, the other server's answer."""

from fsl_async.bounds import accepts, check_answer, check_private
from fsl_async.errors import PeerViolationError
from tests.support.bounded import EXACT, EXACT_128, PROJECTED, Scene, of_norm

from .parser import SLOW, Parser

SYSTEMS = (EXACT, EXACT_128, PROJECTED)

SCENES = tuple(Scene(terms, of_norm(terms.norm // 2, 40, 9)) for terms in SYSTEMS)


def _read_private(data: bytes) -> None:
    """As the carrier checks it; what it takes, it can answer for."""
    for terms, scene in zip(SYSTEMS, SCENES, strict=True):
        if len(data) == terms.private_bytes:
            check_private(terms, data, "S1")
            assert len(scene.answer(0, data)) == terms.verifier_bytes
            return
    check_private(EXACT, data, "S1")


def _read_answer(data: bytes) -> None:
    """Any bytes at all have a verdict, and two servers the same one; what a server refuses, it does not accept."""
    for terms in SYSTEMS:
        ours = bytes(terms.verifier_bytes)
        assert (accepted := accepts(terms, ours, data)) == accepts(terms, data, ours)
        try:
            check_answer(terms, data, "S1")
        except PeerViolationError:
            assert not accepted


def _beyond() -> tuple[bytes, ...]:
    fields = {terms.field for terms in SYSTEMS}
    return tuple(number.to_bytes(field.element_bytes, "little") for field in fields for number in (field.prime, 1))


def _privates() -> list[bytes]:
    return [scene.honest() for scene in SCENES]


def _answers() -> list[bytes]:
    return [scene.answer(1, b"") for scene in SCENES]


LONGEST = max(terms.private_bytes for terms in SYSTEMS) + 100

PARSERS = (
    Parser(
        "bound-private-part",
        _read_private,
        _privates,
        (PeerViolationError,),
        "S1",
        share=SLOW,
        longest=LONGEST,
        tokens=_beyond(),
    ),
    Parser("bound-answer", _read_answer, _answers, (), share=SLOW, longest=LONGEST, tokens=_beyond()),
)
