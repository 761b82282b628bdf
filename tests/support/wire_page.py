"""What decoders written from docs/wire share: the examples, and the digests as the pages define them."""

from __future__ import annotations

import hashlib
import json

from blake3 import blake3

from tests import ROOT

CLIENT, SERVERS = (
    (ROOT / "docs" / "wire" / f"{name}.md").read_text(encoding="utf-8") for name in ("client", "servers")
)
VECTORS = json.loads((ROOT / "docs" / "wire-vectors.json").read_text(encoding="utf-8"))


def of(text: str) -> bytes:
    return bytes.fromhex(text)


def le(number: int, size: int) -> bytes:
    return number.to_bytes(size, "little")


def H(tag: str, *parts: bytes, key: bytes = b"") -> bytes:  # noqa: N802 - as on the page
    content = b"".join(le(len(part), 8) + (part if len(part) <= 1024 else blake3(part).digest()) for part in parts)
    return hashlib.blake2b(content, digest_size=32, person=tag.encode().ljust(16, b"\0"), key=key).digest()


def K(tag: str, *parts: bytes) -> bytes:  # noqa: N802
    return H(tag, *parts)[:16]
