"""What a server writes is shown to a client's user as words, and moves nothing on his terminal."""

import msgspec
import pytest

from fsl_async.errors import FslError, PeerViolationError
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import Answer, Message, Receipt, Refused
from parties import simulate
from parties.client.requests import refusal
from parties.commands.report import Report
from parties.outcome import Aborted
from tests.support.shop import TASK, forging, meddled, model, take_part
from transport import RefusedError

NAMING = msgspec.structs.replace(TASK, participants="names")
EVIL = "\x1b[2J\x1b]0;you are counted\x07\r\nS1: all is well\u202e"
SHOWN = r"\x1b[2J\x1b]0;you are counted\x07\r\nS1: all is well\u202e"


@pytest.mark.parametrize("reason", ["round-closed", "conflict", "busy"])
def test_a_refusal_is_printable(reason: str) -> None:
    error = refusal(0, Refused(reason=reason, explanation=EVIL, retry_after=1))
    assert str(error).isprintable()
    assert SHOWN in str(error)


def test_so_is_a_violation_that_quotes_its_peer() -> None:
    assert str(PeerViolationError("S0", f"sent {EVIL}")) == f"S0: sent {SHOWN}"


async def test_so_are_an_aborted_round_s_reason_and_an_error_that_tells_of_it() -> None:
    async with simulate(TASK, model(), seed=1) as network:
        forge = forging(network, lambda told: {"ending": Aborted(EVIL)}, "S0", "S1")
        async with meddled(network.client("carol"), incoming=forge) as carol:
            await take_part(carol)
            with pytest.raises(FslError, match="at least 2 are needed"):
                await network.finish_round()
            assert (await carol.outcome()).reason == SHOWN


async def test_a_name_that_nobody_can_have_is_refused() -> None:
    async with simulate(NAMING, model(), seed=1) as network:
        forge = forging(network, lambda told: {"participants": 1, "names": (EVIL,)}, "S0", "S1")
        async with meddled(network.client("carol"), incoming=forge) as carol:
            await take_part(carol)
            with pytest.raises(FslError):
                await network.finish_round()
            with pytest.raises(PeerViolationError, match="with a client called") as caught:
                await carol.outcome()
            assert str(caught.value).isprintable()


async def test_a_reply_of_another_kind_and_of_another_round_is_told_in_printable_words() -> None:
    async def instead(address: str, message: Message, data: bytes) -> bytes | None:
        if isinstance(message, Receipt):
            return b"".join(encode(Answer(round_id=EVIL.encode(), query=1)))
        return data

    async with simulate(TASK, model(), seed=1) as network, meddled(network.client("carol"), incoming=instead) as carol:
        with pytest.raises(PeerViolationError) as caught:
            await take_part(carol)
    assert str(caught.value).isprintable()


async def test_why_a_server_lets_nobody_in_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    from transport import Refusal

    async with simulate(TASK, model(), seed=1) as network:

        async def admit(key: bytes, payload: bytes) -> Refusal:
            return Refusal(EVIL)

        monkeypatch.setattr(network.servers[0].enrolment, "admit", admit, raising=True)
        with pytest.raises(RefusedError) as caught:
            await network.client("carol").run()
    assert str(caught.value).isprintable()
    assert caught.value.reason == SHOWN


def test_what_a_command_says_at_last_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    Report("submit", "text").failure(FslError(f"S0 says {EVIL}"))
    said = capsys.readouterr().err.rstrip("\n")
    assert "\x1b[2J" not in said
    assert "\\x1b" in said
