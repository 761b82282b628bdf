"""A server's channel key in a file of its own: without the key that signs, and as private as any other."""

import pytest

from fsl_async.errors import MisuseError, StorageError
from parties.identity.channel_keys import ChannelKeys
from parties.identity.keys import Identity


def test_the_file_has_the_channel_key_alone_and_is_its_owner_s(tmp_path):
    identity = Identity.generate("S0")
    path = tmp_path / "s0-doors.key"
    ChannelKeys.of(identity).save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert identity.statement_secret.hex() not in path.read_text()
    keys = ChannelKeys.load(path)
    assert (keys.name, keys.public) == ("S0", identity.public.channel)
    assert keys.secret.hex() not in repr(keys)
    with pytest.raises(StorageError, match="never overwritten"):
        ChannelKeys.of(identity).save(path)


def test_what_is_no_such_file_is_refused_by_name(tmp_path):
    path = tmp_path / "s0.key"
    with pytest.raises(MisuseError, match=r"make it with `fsl-async keygen s0.key --channel-of`"):
        ChannelKeys.load(path)
    Identity.generate("S0").save(path)
    with pytest.raises(MisuseError, match="holds the key that signs, too, which a door must not have"):
        ChannelKeys.load(path)
    broken = tmp_path / "doors.key"
    ChannelKeys("S0", bytes(32)).save(broken)
    with pytest.raises(MisuseError, match="statement_secret must be"):
        Identity.load(broken)
    broken.chmod(0o644)
    with pytest.raises(MisuseError, match="can be read by others"):
        ChannelKeys.load(broken)
