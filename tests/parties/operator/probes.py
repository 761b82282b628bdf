"""Secrets of a run, and whether any of them stands in a text in one of the forms that people print secrets in."""

import base64
from collections.abc import Iterable

SHORTEST = 8


def forms(secret: bytes) -> set[str]:
    """How a secret could be written: hexadecimal, decimal, base64, as Python or msgpack shows it."""
    return {
        secret.hex(),
        secret.hex().upper(),
        secret.hex(" "),
        str(int.from_bytes(secret, "big")),
        str(int.from_bytes(secret, "little")),
        base64.b64encode(secret).decode().rstrip("="),
        base64.urlsafe_b64encode(secret).decode().rstrip("="),
        base64.b32encode(secret).decode().rstrip("="),
        repr(secret)[2:-1],
        secret.decode("latin-1"),
    }


def written_forms(secret: bytes) -> list[str]:
    """Those that stand in running text when somebody formats the secret by mistake."""
    whole = [secret.hex(), secret.hex().upper(), repr(secret), repr(bytearray(secret))]
    numbers = [str(int.from_bytes(secret, order)) for order in ("big", "little")]
    return [*whole, *numbers, base64.b64encode(secret).decode()]


def found_in(text: str, secrets: Iterable[bytes]) -> list[str]:
    """The forms of secrets that stand in a text."""
    return [form for secret in secrets if len(secret) >= SHORTEST for form in forms(secret) if form in text]
