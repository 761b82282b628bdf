"""A static key has one form: another one for the same secret is refused wherever a key comes from."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from nacl import bindings

from fsl_async.errors import MisuseError
from parties.identity.keys import Identity, PublicIdentity
from parties.identity.registry import Registry
from tests.support.cases import in_turn
from transport import KeyPair
from transport.errors import AuthenticationError
from transport.noise import HandshakeState, is_public_key

PRIME = 2**255 - 19
LOW_ORDER = (
    0,
    1,
    PRIME - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)


def pair_of(seed: int) -> KeyPair:
    return KeyPair.from_private(random.Random(seed).randbytes(32))


def high_bit_set(key: bytes) -> bytes:
    return key[:31] + bytes([key[31] | 0x80])


@in_turn("seed", range(20))
def test_keys_that_are_made_have_the_one_form(seed):
    assert is_public_key(pair_of(seed).public)


def test_another_form_is_the_same_key_to_x25519_and_is_refused():
    ours, theirs = pair_of(1), pair_of(2)
    alias = high_bit_set(ours.public)
    assert bindings.crypto_scalarmult(theirs.private, alias) == bindings.crypto_scalarmult(theirs.private, ours.public)
    assert not is_public_key(alias)


@in_turn("coordinate", [*range(PRIME, 2**255), *LOW_ORDER])
def test_coordinates_that_are_not_reduced_or_hide_nothing_are_refused(coordinate):
    assert not is_public_key(coordinate.to_bytes(32, "little"))
    assert not is_public_key(high_bit_set(coordinate.to_bytes(32, "little")))


@pytest.mark.parametrize("coordinate", LOW_ORDER)
def test_the_points_of_low_order_are_those_with_which_every_secret_gives_zero(coordinate):
    with pytest.raises(Exception, match=r"."):
        bindings.crypto_scalarmult(pair_of(1).private, coordinate.to_bytes(32, "little"))


def test_a_handshake_with_another_form_of_the_client_s_key_fails():
    server, client = pair_of(1), pair_of(2)
    for form, accepted in ((client, True), (replace(client, public=high_bit_set(client.public)), False)):
        draw = random.Random(3).randbytes
        initiator = HandshakeState(form, server.public, b"", draw)
        responder = HandshakeState(server, None, b"", draw)
        responder.read_message(initiator.write_message(b""))
        initiator.read_message(responder.write_message(b""))
        third = initiator.write_message(b"")
        if accepted:
            responder.read_message(third)
            continue
        with pytest.raises(AuthenticationError, match="not in the one form that keys have"):
            responder.read_message(third)


@pytest.mark.parametrize("table", ["clients", "revoked"])
def test_a_file_with_another_form_of_a_key_is_refused(tmp_path: Path, table):
    anna = Identity.generate("anna", random.Random(4).randbytes).public
    alias = replace(anna, channel=high_bit_set(anna.channel))
    path = tmp_path / "clients.toml"
    path.write_text(f"[[{table}]]\n{alias.to_toml()}")
    with pytest.raises(MisuseError, match=r"clients.toml, .* 1: channel [0-9a-f]{64} is not the one form"):
        Registry.load(path)
    (tmp_path / "anna.pub").write_text(alias.to_toml())
    with pytest.raises(MisuseError, match="is not the one form"):
        PublicIdentity.load(tmp_path / "anna.pub")
