"""The handshake against a published vector, an independent implementation, and hostile bytes."""

import random

import pytest
from noise.connection import Keypair, NoiseConnection

from fsl_async.errors import MisuseError
from tests.transport.noise_vectors import VECTOR
from transport.errors import AuthenticationError
from transport.noise import CipherState, HandshakeState, KeyPair

XK = "Noise_XK_25519_AESGCM_SHA256"


def side_of(vector, side):
    def figure(name):
        return bytes.fromhex(vector[f"{side}_{name}"])

    own, server_key = KeyPair.from_private(figure("static")), figure("remote_static") if side == "init" else None
    return HandshakeState(own, server_key, figure("prologue"), lambda size: figure("ephemeral"))


def check_vector(vector):
    """Replays a vector's handshake and transport messages, byte for byte."""
    writer, reader = initiator, responder = side_of(vector, "init"), side_of(vector, "resp")
    messages = [(bytes.fromhex(m["payload"]), bytes.fromhex(m["ciphertext"])) for m in vector["messages"]]
    while not initiator.finished:
        payload, expected = messages.pop(0)
        assert writer.write_message(payload) == expected
        assert reader.read_message(expected) == payload
        writer, reader = reader, writer
    assert initiator.handshake_hash == responder.handshake_hash
    ciphers = {initiator: initiator.split(), responder: responder.split()}
    assert messages, "the vector has no transport message"
    for payload, expected in messages:
        assert ciphers[writer][0].encrypt(b"", payload) == expected
        assert ciphers[reader][1].decrypt(b"", expected) == payload
        writer, reader = reader, writer


def test_the_published_vector():
    check_vector(VECTOR)


def xk_pair(seed=1, prologue=b"agreed"):
    draw = random.Random(seed).randbytes
    server, client = KeyPair.generate(draw), KeyPair.generate(draw)
    return (HandshakeState(client, server.public, prologue, draw), HandshakeState(server, None, prologue, draw))


def finished_pair(seed=1):
    initiator, responder = xk_pair(seed)
    responder.read_message(initiator.write_message(b"one"))
    initiator.read_message(responder.write_message(b"two"))
    responder.read_message(initiator.write_message(b"three"))
    return initiator, responder


def independent(initiator, local, remote):
    """The same endpoint, by the package noiseprotocol."""
    connection = NoiseConnection.from_name(XK.encode())
    connection.set_prologue(b"agreed")
    connection.set_as_initiator() if initiator else connection.set_as_responder()
    connection.set_keypair_from_private_bytes(Keypair.STATIC, local.private)
    if initiator:
        connection.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, remote.public)
    connection.start_handshake()
    return connection


@pytest.mark.parametrize("we_initiate", [True, False])
def test_an_independent_implementation_understands_us_and_we_it(we_initiate):
    draw = random.Random(7).randbytes
    ours, theirs = KeyPair.generate(draw), KeyPair.generate(draw)
    us = HandshakeState(ours, theirs.public if we_initiate else None, b"agreed", draw)
    them = independent(not we_initiate, theirs, ours)
    our_turn = we_initiate
    for payload in (b"", b"second", b"third"):
        if our_turn:
            assert them.read_message(us.write_message(payload)) == payload
        else:
            assert us.read_message(bytes(them.write_message(payload))) == payload
        our_turn = not our_turn
    assert us.finished
    assert us.remote_static == theirs.public
    assert us.handshake_hash == them.get_handshake_hash()
    sending, receiving = us.split()
    for text in (b"", b"a", bytes(65_519)):
        assert them.decrypt(sending.encrypt(b"", text)) == text
        assert receiving.decrypt(b"", bytes(them.encrypt(text))) == text
    sending.rekey()
    them.rekey_inbound_cipher()
    assert them.decrypt(sending.encrypt(b"", b"after rekey")) == b"after rekey"


def test_every_flipped_bit_of_every_message_is_refused():
    for turn in range(3):
        size = len(nth_message(xk_pair(), turn))
        for place in range(size):
            for bit in (0x01, 0x80):
                pair = xk_pair()
                message = bytearray(nth_message(pair, turn))
                message[place] ^= bit
                reader = pair[1 - turn % 2]
                with pytest.raises(AuthenticationError):
                    reader.read_message(bytes(message))
                assert not reader.finished


def nth_message(pair, turn):
    """Runs an honest handshake up to message `turn` and returns that message, unread."""
    for earlier in range(turn):
        pair[1 - earlier % 2].read_message(pair[earlier % 2].write_message(b"payload"))
    return pair[turn % 2].write_message(b"payload")


def test_every_shortened_message_is_refused():
    for turn in range(3):
        for size in range(len(nth_message(xk_pair(), turn))):
            pair = xk_pair()
            message = nth_message(pair, turn)
            with pytest.raises(AuthenticationError):
                pair[1 - turn % 2].read_message(message[:size])


def test_another_prologue_is_refused():
    initiator, _ = xk_pair(prologue=b"one")
    _, responder = xk_pair(prologue=b"other")
    with pytest.raises(AuthenticationError):
        responder.read_message(initiator.write_message(b""))


@pytest.mark.parametrize("point", [bytes(32), (1).to_bytes(32, "little"), (2**255 - 19).to_bytes(32, "little")])
def test_points_of_low_order_are_refused(point):
    _, responder = xk_pair()
    with pytest.raises(AuthenticationError, match="low order"):
        responder.read_message(point + bytes(16))
    draw = random.Random(3).randbytes
    initiator = HandshakeState(KeyPair.generate(draw), point, b"", draw)
    with pytest.raises(AuthenticationError, match="low order"):
        initiator.write_message(b"")


def test_a_failed_handshake_is_over():
    initiator, responder = xk_pair()
    message = initiator.write_message(b"")
    with pytest.raises(AuthenticationError):
        responder.read_message(bytes(48))
    for attempt in (lambda: responder.read_message(message), lambda: responder.write_message(b""), responder.split):
        with pytest.raises(MisuseError):
            attempt()


def test_turns_are_kept():
    initiator, responder = xk_pair()
    with pytest.raises(MisuseError, match="turn"):
        responder.write_message(b"")
    with pytest.raises(MisuseError, match="turn"):
        initiator.read_message(bytes(48))
    with pytest.raises(MisuseError, match="last message"):
        initiator.split()
    initiator, _ = finished_pair()
    with pytest.raises(MisuseError, match="over"):
        initiator.write_message(b"")


def test_a_nonce_advances_only_after_a_successful_decryption():
    sending, receiving = finished_pair()[0].split()[0], finished_pair()[1].split()[1]
    first, second = sending.encrypt(b"", b"first"), sending.encrypt(b"", b"second")
    for wrong in (second, first[:-1], first[:15], b"", bytes(40)):
        with pytest.raises(AuthenticationError):
            receiving.decrypt(b"", wrong)
        assert receiving.nonce == 0
    assert receiving.decrypt(b"", first) == b"first"
    with pytest.raises(AuthenticationError):
        receiving.decrypt(b"", first)
    assert receiving.decrypt(b"", second) == b"second"


def test_the_last_nonce_is_never_used():
    key = random.Random(4).randbytes(32)
    cipher = CipherState(key, nonce=2**64 - 2)
    last = cipher.encrypt(b"", b"last")
    with pytest.raises(MisuseError, match="nonces"):
        cipher.encrypt(b"", b"one too many")
    receiver = CipherState(key, nonce=2**64 - 2)
    assert receiver.decrypt(b"", last) == b"last"
    with pytest.raises(MisuseError, match="nonces"):
        receiver.decrypt(b"", last)


def test_secrets_are_not_shown():
    draw = random.Random(5).randbytes
    pair = KeyPair.generate(draw)
    shown = repr(pair) + repr(CipherState(pair.private)) + repr(finished_pair()[0])
    assert pair.private.hex() not in shown
    assert repr(pair.private) not in shown
    assert repr(pair.public) in shown


@pytest.mark.parametrize("size", [0, 31, 33])
def test_keys_of_another_length_are_refused(size):
    with pytest.raises(MisuseError, match="32 bytes"):
        KeyPair.from_private(bytes(size))
    draw = random.Random(6).randbytes
    with pytest.raises(MisuseError, match="32 bytes"):
        HandshakeState(KeyPair.generate(draw), bytes(size), b"", draw)


def test_the_same_randomness_gives_the_same_bytes():
    assert nth_message(xk_pair(seed=9), 2) == nth_message(xk_pair(seed=9), 2)
    assert nth_message(xk_pair(seed=9), 2) != nth_message(xk_pair(seed=10), 2)
