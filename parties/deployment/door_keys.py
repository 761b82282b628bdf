"""What a door must have of its server: the channel key, and blobs that it can reach."""

from __future__ import annotations

from fsl_async.errors import MisuseError, StorageError
from parties.files.disk import exists
from parties.identity.channel_keys import ChannelKeys
from parties.settings.blobs_table import blobs_folder
from parties.settings.party_file import ServerFile
from parties.settings.task_file import Deployment

__all__ = ["check_door_blobs", "own_channel_keys"]


def own_channel_keys(file: ServerFile, deployment: Deployment) -> ChannelKeys:
    """The channel key that a server's doors have, which must be the one in the task file.

    Raises:
        MisuseError: it is not, or cannot be read; or the file has no doors.
    """
    if file.doors.keys is None:
        raise MisuseError(
            'the server\'s file has no [doors]; add the table, with core = "unix:…" and keys = "s0-doors.key"'
        )
    keys = ChannelKeys.load(file.doors.keys)
    if keys.public != deployment.identity(file.server).channel:
        raise MisuseError(
            f"{file.doors.keys} does not hold the channel key that {file.task} gives for S{file.server}; make it anew "
            f"from the server's keys: `fsl-async keygen {file.doors.keys.name} --channel-of {file.identity.name}`"
        )
    return keys


def check_door_blobs(file: ServerFile) -> None:
    """Refuse a folder of blobs that is not on this host.

    Raises:
        StorageError: there is no such folder here.
    """
    folder = blobs_folder(file)
    if folder is not None and not exists(folder):
        raise StorageError(
            f"{folder}, the folder of the blobs of S{file.server}, is not on this host; the server makes it when it "
            'first starts, and a door on another host needs an object store instead: [blobs] url = "s3://bucket/path"'
        )
