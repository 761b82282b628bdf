"""The Noise protocol framework, revision 34, sans I/O: who is at the other end, and two keys that nobody else has.

The channel uses Noise_XK_25519_AESGCM_SHA256 and nothing else: the client knows the server's static key beforehand
and sends its own only to the holder of that key, encrypted with forward secrecy. Why AES: docs/adr/0030.

    initiator (client)                         responder (server), whose static key the initiator knows
    e, es, payload          ──────────────→
                            ←──────────────    e, ee, payload
    s, se, payload          ──────────────→

Rules kept here:

- Randomness is an argument. Nothing else is random, so that a seed replays a handshake byte by byte.
- A nonce advances only after a successful decryption, and is never used twice; the last one is reserved for `rekey`.
- A handshake that failed once is over.
- A static key has one form. X25519 takes others for the same key (its highest bit is ignored, and numbers are reduced);
  a client that could come under two would have two places, and the revocation of one would not reach the other.
- The chaining key never leaves; the handshake hash, which identifies the session, does.
- What the libraries refuse (a forged tag, a ciphertext shorter than one, a Diffie-Hellman result of all zeros) becomes
  `AuthenticationError`, in `CipherState.decrypt_into` and `_diffie_hellman` alone.
- No secret shows in a `repr`.

Section numbers refer to The Noise Protocol Framework, revision 34, https://noiseprotocol.org/noise.html.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from nacl import bindings
from nacl.exceptions import RuntimeError as SodiumError

from fsl_async.errors import MisuseError
from fsl_async.randomness import Randomness
from transport.errors import AuthenticationError

KEY_SIZE = 32
TAG_SIZE = 16

_RESERVED_NONCE = 2**64 - 1

Bytes = bytes | bytearray | memoryview

_PRIME = 2**255 - 19
_LOW_ORDER = frozenset(
    {
        0,
        1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
        _PRIME - 1,
    }
)
"""The coordinates of the points whose order divides 8: with them every secret gives the same result, 0."""

_PROTOCOL_NAME = b"Noise_XK_25519_AESGCM_SHA256"
_INITIATOR, _RESPONDER = True, False
_PATTERN = ((_INITIATOR, ("e", "es")), (_RESPONDER, ("e", "ee")), (_INITIATOR, ("s", "se")))
"""Section 7.5: who sends which tokens. Of a Diffie-Hellman token the first letter names the initiator's key."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An X25519 key pair, 32 raw bytes each.

    `KeyPair.generate(os.urandom)` draws one; `private` is not shown by `repr`.
    """

    private: bytes = field(repr=False)
    public: bytes

    @classmethod
    def from_private(cls, private: bytes) -> KeyPair:
        """Derives the public half of a private key.

        Raises:
            MisuseError: the key is not 32 bytes long.
        """
        require_key("an X25519 private key", private)
        return cls(private, bindings.crypto_scalarmult_base(private))

    @classmethod
    def generate(cls, randomness: Randomness) -> KeyPair:
        """Draws a new key pair."""
        return cls.from_private(randomness(KEY_SIZE))


class CipherState:
    """One direction's key and nonce (section 5.1); a key's schedule is made once."""

    __slots__ = ("_aead", "_nonce")

    def __init__(self, key: bytes, nonce: int = 0) -> None:
        self._aead = AESGCM(key)
        self._nonce = nonce

    @property
    def nonce(self) -> int:
        """The nonce of the next ciphertext, which is also the number of ciphertexts so far."""
        return self._nonce

    def encrypt(self, associated: bytes, plaintext: Bytes) -> bytes:
        """Returns what `encrypt_into` makes."""
        ciphertext = bytearray(len(plaintext) + TAG_SIZE)
        self.encrypt_into(associated, plaintext, ciphertext)
        return bytes(ciphertext)

    def decrypt(self, associated: bytes, ciphertext: Bytes) -> bytes:
        """Returns what `decrypt_into` makes."""
        plaintext = bytearray(max(0, len(ciphertext) - TAG_SIZE))
        self.decrypt_into(associated, ciphertext, plaintext)
        return bytes(plaintext)

    def encrypt_into(self, associated: bytes, plaintext: Bytes, ciphertext: bytearray | memoryview) -> None:
        """Encrypts under the next nonce into a buffer of 16 bytes more than the plaintext, apart from it.

        Raises:
            MisuseError: no nonce is left.
        """
        self._aead.encrypt_into(self._usable_nonce(), plaintext, associated, ciphertext)
        self._nonce += 1

    def decrypt_into(self, associated: bytes, ciphertext: Bytes, plaintext: bytearray | memoryview) -> None:
        """Decrypts under the next nonce into a buffer of 16 bytes less than the ciphertext, apart from it.

        If it fails, the nonce stays the next one, and what is in the buffer is nobody's: it must not be read.

        Raises:
            AuthenticationError: the ciphertext is not what the other side encrypted at this place.
            MisuseError: no nonce is left.
        """
        try:
            self._aead.decrypt_into(self._usable_nonce(), ciphertext, associated, plaintext)
        except InvalidTag as error:
            raise AuthenticationError("decryption failed: altered bytes, or other keys than expected") from error
        self._nonce += 1

    def rekey(self) -> None:
        """Replaces the key by a one-way function of itself; the nonce runs on (sections 4.2, 11.3)."""
        self._aead = AESGCM(self._aead.encrypt(_nonce_bytes(_RESERVED_NONCE), bytes(KEY_SIZE), b"")[:KEY_SIZE])

    def _usable_nonce(self) -> bytes:
        if self._nonce >= _RESERVED_NONCE:
            raise MisuseError("all 2^64 - 1 nonces of this key are used; open a new channel")
        return _nonce_bytes(self._nonce)


class _Cleartext:
    """What stands for the cipher until the first Diffie-Hellman result: section 5.1's empty key."""

    __slots__ = ()

    def encrypt(self, associated: bytes, plaintext: bytes) -> bytes:
        return plaintext

    def decrypt(self, associated: bytes, ciphertext: bytes) -> bytes:
        return ciphertext


class _SymmetricState:
    """The chaining key, the running hash of the transcript and the current cipher (section 5.2)."""

    __slots__ = ("_chaining_key", "_cipher", "digest")

    def __init__(self) -> None:
        self.digest = self._chaining_key = _PROTOCOL_NAME.ljust(KEY_SIZE, b"\0")  # shorter than a hash, so not hashed
        self._cipher: CipherState | _Cleartext = _Cleartext()

    def mix_hash(self, data: bytes) -> None:
        self.digest = hashlib.sha256(self.digest + data).digest()

    def mix_key(self, material: bytes) -> None:
        self._chaining_key, key = self._derive(material)
        self._cipher = CipherState(key)

    def encrypt_and_hash(self, plaintext: bytes) -> bytes:
        ciphertext = self._cipher.encrypt(self.digest, plaintext)
        self.mix_hash(ciphertext)
        return ciphertext

    def decrypt_and_hash(self, ciphertext: bytes) -> bytes:
        plaintext = self._cipher.decrypt(self.digest, ciphertext)
        self.mix_hash(ciphertext)
        return plaintext

    def split(self) -> tuple[CipherState, CipherState]:
        first, second = self._derive(b"")
        return CipherState(first), CipherState(second)

    def _derive(self, material: bytes) -> tuple[bytes, bytes]:
        """HKDF with the chaining key as salt, no info and two outputs (section 4.3, RFC 5869)."""
        secret = _hmac(self._chaining_key, material)
        first = _hmac(secret, b"\x01")
        return first, _hmac(secret, first + b"\x02")


class HandshakeState:
    """One side of a handshake (section 5.3).

    `write_message` and `read_message` take turns, the initiator writing first, until `finished`; then `split` gives the
    two transport ciphers.

    Args:
        own: our static keys.
        server_key: the responder's static public key, if we are the initiator; None if we are the responder.
        prologue: what both sides must agree on for the handshake to succeed.
        randomness: where the ephemeral key comes from.
    """

    def __init__(self, own: KeyPair, server_key: bytes | None, prologue: bytes, randomness: Randomness) -> None:
        self._messages: Sequence[tuple[bool, tuple[str, ...]]] = _PATTERN
        self._failed = False
        self._initiator = server_key is not None
        self._local = {"s": own}
        self._remote: dict[str, bytes] = {}
        self._randomness = randomness
        self._symmetric = _SymmetricState()
        self._symmetric.mix_hash(prologue)
        if server_key is None:
            self._symmetric.mix_hash(own.public)
        else:
            require_key("an X25519 public key", server_key)
            self._remote["s"] = server_key
            self._symmetric.mix_hash(server_key)

    @property
    def finished(self) -> bool:
        """Whether all three messages have been exchanged."""
        return not self._messages and not self._failed

    @property
    def remote_static(self) -> bytes:
        """The other side's static public key, which is authenticated once the handshake is finished."""
        return self._remote["s"]

    @property
    def handshake_hash(self) -> bytes:
        """Identifies this session: both sides have the same, no other session has (section 11.2)."""
        return self._symmetric.digest

    def write_message(self, payload: bytes) -> bytes:
        """Makes the next message.

        Raises:
            AuthenticationError: the other side's key is a point of low order.
            MisuseError: it is the other side's turn, or the handshake is over.
        """
        tokens = self._take_turn(writing=True)
        try:
            parts = [self._write_token(token) for token in tokens]
            return b"".join((*parts, self._symmetric.encrypt_and_hash(payload)))
        except AuthenticationError:
            self._failed = True
            raise

    def read_message(self, message: bytes) -> bytes:
        """Takes the other side's next message and returns its payload.

        Raises:
            AuthenticationError: the message is not what an honest other side would have sent. The handshake is over.
            MisuseError: it is our turn, or the handshake is over.
        """
        tokens = self._take_turn(writing=False)
        try:
            for token in tokens:
                message = self._read_token(token, message)
            return self._symmetric.decrypt_and_hash(message)
        except AuthenticationError:
            self._failed = True
            raise

    def split(self) -> tuple[CipherState, CipherState]:
        """Returns the ciphers of (our sending, our receiving) direction; to be called once.

        Raises:
            MisuseError: the handshake is not finished.
        """
        if not self.finished:
            raise MisuseError("a handshake gives keys only after its last message")
        from_initiator, from_responder = self._symmetric.split()
        return (from_initiator, from_responder) if self._initiator else (from_responder, from_initiator)

    def _take_turn(self, writing: bool) -> Sequence[str]:
        if self._failed or self.finished:
            raise MisuseError("the handshake is over; start a new one")
        sent_by_initiator, tokens = self._messages[0]
        if (sent_by_initiator == self._initiator) != writing:
            raise MisuseError("it is the other side's turn" if writing else "it is our turn to write")
        self._messages = self._messages[1:]
        return tokens

    def _write_token(self, token: str) -> bytes:
        match token:
            case "e":
                self._local["e"] = KeyPair.generate(self._randomness)
                self._symmetric.mix_hash(self._local["e"].public)
                return self._local["e"].public
            case "s":
                return self._symmetric.encrypt_and_hash(self._local["s"].public)
            case _:
                self._mix_secret(token)
                return b""

    def _read_token(self, token: str, message: bytes) -> bytes:
        """Takes the token's bytes off the front of the message and returns the rest."""
        match token:
            case "e":
                self._remote["e"], rest = _take(message, KEY_SIZE)
                self._symmetric.mix_hash(self._remote["e"])
                return rest
            case "s":
                sealed, rest = _take(message, KEY_SIZE + TAG_SIZE)
                self._remote["s"] = self._symmetric.decrypt_and_hash(sealed)
                if not is_public_key(self._remote["s"]):
                    raise AuthenticationError("the other side's static key is not in the one form that keys have")
                return rest
            case _:
                self._mix_secret(token)
                return message

    def _mix_secret(self, token: str) -> None:
        """Mixes in a Diffie-Hellman result."""
        mine, theirs = (token[0], token[1]) if self._initiator else (token[1], token[0])
        self._symmetric.mix_key(_diffie_hellman(self._local[mine].private, self._remote[theirs]))


def require_key(what: str, key: bytes) -> None:
    """Refuses a key that is not 32 bytes; PyNaCl would read past the end of a shorter one.

    Raises:
        MisuseError: the length is wrong; the message gives `what` and the length, not the key.
    """
    if not isinstance(key, bytes) or len(key) != KEY_SIZE:
        raise MisuseError(f"{what} must be {KEY_SIZE} bytes, this one is a {type(key).__name__} of {len(key)}")


def is_public_key(key: bytes) -> bool:
    """Whether 32 bytes are a public key of X25519 in its one form: reduced, and of a point that hides a secret."""
    coordinate = int.from_bytes(key, "little")
    return len(key) == KEY_SIZE and coordinate < _PRIME and coordinate not in _LOW_ORDER


def _take(message: bytes, size: int) -> tuple[bytes, bytes]:
    if len(message) < size:
        raise AuthenticationError(f"a handshake message ends after {len(message)} of at least {size} expected bytes")
    return message[:size], message[size:]


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _diffie_hellman(private: bytes, public: bytes) -> bytes:
    try:
        return bindings.crypto_scalarmult(private, public)
    except SodiumError as error:
        raise AuthenticationError("the other side's X25519 key is a point of low order") from error


def _nonce_bytes(nonce: int) -> bytes:
    """32 zero bits, then the counter, big-endian (section 12.4)."""
    return nonce.to_bytes(12, "big")
