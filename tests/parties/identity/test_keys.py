"""Identities: two key pairs, files that keep them, and the list of those a server knows."""

import errno
import os
import stat
from pathlib import Path

import pytest

from fsl_async.digests import Domain
from fsl_async.errors import MisuseError, StorageError
from parties import Identity, PublicIdentity, Registry
from parties.identity.keys import verify


def test_the_two_key_pairs_have_nothing_in_common():
    identity = Identity.generate("alice")
    keys = {identity.channel_secret, identity.statement_secret, identity.public.channel, identity.public.statement}
    assert len(keys | {identity.noise_secret}) == 5
    assert {len(key) for key in keys} == {32}


def test_keys_follow_from_randomness_alone():
    first, second = (Identity.generate("alice", lambda size: bytes(range(size))) for _ in range(2))
    assert first.public == second.public
    assert Identity.generate("alice").public != Identity.generate("alice").public


def test_a_signature_holds_for_one_key_one_domain_and_one_statement():
    identity, other = Identity.generate("alice"), Identity.generate("alice")
    signature = identity.sign(Domain.RECEIPT, b"a", b"b")
    key = identity.public.statement
    assert verify(key, signature, Domain.RECEIPT, b"a", b"b")
    assert not verify(key, signature, Domain.RECEIPT, b"ab")
    assert not verify(key, signature, Domain.RECEIPT, b"a", b"")
    assert not verify(key, signature, Domain.OUTCOME, b"a", b"b")
    assert not verify(other.public.statement, signature, Domain.RECEIPT, b"a", b"b")
    assert not verify(key, signature[:-1], Domain.RECEIPT, b"a", b"b")
    assert not verify(key, bytes(64), Domain.RECEIPT, b"a", b"b")


# ---- files


def test_a_secret_file_is_its_owners_alone_and_is_read_back(tmp_path):
    identity = Identity.generate("alice")
    identity.save(tmp_path / "alice.key")
    assert stat.S_IMODE((tmp_path / "alice.key").stat().st_mode) == 0o600
    assert Identity.load(tmp_path / "alice.key") == identity


def test_both_files_are_written_side_by_side(tmp_path):
    identity = Identity.generate("alice")
    public = identity.save_both(tmp_path / "alice.key")
    assert public == tmp_path / "alice.pub"
    assert PublicIdentity.load(public) == identity.public
    assert identity.channel_secret.hex() not in public.read_text()
    assert identity.statement_secret.hex() not in public.read_text()
    assert identity.noise_secret.hex() not in public.read_text()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_a_secret_file_that_others_can_read_is_refused(tmp_path, mode):
    Identity.generate("alice").save(tmp_path / "alice.key")
    (tmp_path / "alice.key").chmod(mode)
    with pytest.raises(MisuseError, match="can be read by others; `chmod 600` it"):
        Identity.load(tmp_path / "alice.key")


def test_keys_are_never_made_through_a_symbolic_link(tmp_path):
    (tmp_path / "alice.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="exists; keys are never overwritten"):
        Identity.generate("alice").save_both(tmp_path / "alice.key")
    assert not (tmp_path / "elsewhere").exists()


def test_keys_are_read_through_a_symbolic_link_and_checked_where_they_are(tmp_path):
    identity = Identity.generate("alice")
    identity.save(tmp_path / "alice.key")
    (tmp_path / "link.key").symlink_to(tmp_path / "alice.key")
    assert Identity.load(tmp_path / "link.key") == identity
    (tmp_path / "alice.key").chmod(0o644)
    with pytest.raises(MisuseError, match=r"link\.key can be read by others"):
        Identity.load(tmp_path / "link.key")


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path):
    (tmp_path / "folder.key").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "pipe.key", 0o600)
    for name in ("folder.key", "pipe.key"):
        with pytest.raises(MisuseError, match=f"{name} is not a file"):
            Identity.load(tmp_path / name)


def test_keys_that_everybody_can_replace_are_refused(tmp_path):
    Identity.generate("alice").save(tmp_path / "alice.key")
    tmp_path.chmod(0o777)
    with pytest.raises(MisuseError, match=r"everybody can replace it; `chmod o-w` the folder"):
        Identity.load(tmp_path / "alice.key")
    tmp_path.chmod(0o1777)  # as /tmp is: only a file's owner replaces it
    Identity.load(tmp_path / "alice.key")


def test_another_users_keys_are_refused(tmp_path, monkeypatch):
    Identity.generate("alice").save(tmp_path / "alice.key")
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    with pytest.raises(MisuseError, match="belongs to another user"):
        Identity.load(tmp_path / "alice.key")


def test_keys_that_could_not_be_written_whole_do_not_stay(tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        Identity.generate("alice").save_both(tmp_path / "alice.key")
    assert list(tmp_path.iterdir()) == []


def test_keys_without_a_secret_for_noise_are_refused_with_what_to_do(tmp_path):
    path = tmp_path / "S0.key"
    Identity.generate("S0").save(path)
    path.write_text(path.read_text().partition("noise_secret")[0])
    with pytest.raises(MisuseError, match=r"S0.key has no noise_secret: .* make new keys with `fsl-async keygen`"):
        Identity.load(path)


BAD_FILES = {
    "not TOML": ("name = ", "is not TOML"),
    "no name": ("", "a name of 1 to 64 printable characters"),
    "empty name": ('name = ""', "a name of 1 to 64 printable characters"),
    "long name": (f'name = "{"a" * 65}"', "a name of 1 to 64 printable characters"),
    "no keys": ('name = "alice"', "channel.* must be 64 hexadecimal digits"),
    "short key": ('name = "alice"\nchannel{} = "00"', "channel.* must be 64 hexadecimal digits"),
    "no hexadecimal": (f'name = "alice"\nchannel{{}} = "{"xy" * 32}"', "channel.* must be 64 hexadecimal digits"),
    "a number": ('name = "alice"\nchannel{} = 5', "channel.* must be 64 hexadecimal digits"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_malformed_file_is_refused_by_field(tmp_path, case):
    text, pattern = BAD_FILES[case]
    secret, public = tmp_path / "alice.key", tmp_path / "alice.pub"
    secret.write_text(text.replace("{}", "_secret"))
    secret.chmod(0o600)
    public.write_text(text.replace("{}", ""))
    for path, load in ((secret, Identity.load), (public, PublicIdentity.load)):
        with pytest.raises(MisuseError, match=pattern) as refusal:
            load(path)
        assert str(path) in str(refusal.value)


@pytest.mark.parametrize("name", ["", "a" * 65, 'a"b', "a\\b", "a\nb", "\x7f"])
def test_a_name_that_no_file_can_hold_is_refused_before_anything_is_written(tmp_path, name):
    with pytest.raises(MisuseError, match="a name of 1 to 64 printable characters"):
        Identity.generate(name).save_both(tmp_path / "x.key")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "a" * 64, "Ärzte ohne Grenzen", "名前", "a'b", "a=b # c", "😀"])
def test_any_other_name_is_read_back(tmp_path, name):
    identity = Identity.generate(name)
    public = identity.save_both(tmp_path / "x.key")
    assert Identity.load(tmp_path / "x.key").name == PublicIdentity.load(public).name == name


# ---- who is known


def listed(path: Path, *clients: PublicIdentity) -> Path:
    path.write_text("".join(f"[[clients]]\n{client.to_toml()}" for client in clients))
    return path


def test_a_list_knows_its_clients_by_key_and_by_name(tmp_path):
    alice, bob, stranger = (Identity.generate(name).public for name in ("alice", "bob", "stranger"))
    registry = Registry.load(listed(tmp_path / "clients.toml", alice, bob))
    assert len(registry) == 2
    assert registry.by_channel(alice.channel) == alice
    assert registry.by_channel(stranger.channel) is None
    assert "bob" in registry
    assert "stranger" not in registry


def test_two_clients_of_one_name_are_refused(tmp_path):
    one, other = Identity.generate("alice").public, Identity.generate("alice").public
    registry = Registry([one])
    with pytest.raises(MisuseError, match="client 'alice': another client has this name or this key"):
        registry.add(other)
    assert registry.by_channel(one.channel) == one
    assert registry.by_channel(other.channel) is None
    with pytest.raises(MisuseError, match="another client has this name"):
        Registry.load(listed(tmp_path / "clients.toml", one, other))


def test_the_same_client_twice_is_one():
    one = Identity.generate("alice").public
    assert len(Registry([one, one])) == 1


@pytest.mark.parametrize("text", ["[[client]]\n", "clients = 3\n", "[clients]\n", "[[clients]]\nname = 3\n"])
def test_a_malformed_list_is_refused(tmp_path, text):
    (tmp_path / "clients.toml").write_text(text)
    with pytest.raises(MisuseError, match=r"clients\.toml"):
        Registry.load(tmp_path / "clients.toml")


def test_public_keys_given_for_secret_ones_are_told_apart(tmp_path):
    Identity.generate("alice").save_both(tmp_path / "alice.key")
    with pytest.raises(MisuseError, match=r"alice\.pub has public keys, .*the secret file is needed, as .*alice\.key"):
        Identity.load(tmp_path / "alice.pub")
