"""The clients that have enrolled with a server by themselves, read from its store."""

from __future__ import annotations

from contextlib import closing

from fsl_async.errors import MisuseError
from parties.files.disk import exists
from parties.identity.registry import Registry
from parties.server.admission import JOURNAL, enrolled_in
from parties.settings.lists import Member
from parties.settings.party_file import ServerFile
from parties.settings.reading import OnDisk
from parties.storage.sqlite_connections import ReadConnection


def list_enrolled(file: ServerFile) -> list[Member]:
    """The clients that have enrolled with a server by themselves, in order; read from its store, running or not.

    Raises:
        MisuseError: its store is in memory or not there yet, or its list of clients cannot be read.
        StorageError: the store cannot be read.
    """
    if not isinstance(file.store, OnDisk):
        raise MisuseError("the store is in memory, so only the running server knows its enrolled clients; see its log")
    if not exists(file.store.path):
        raise MisuseError(f"{file.store.path}: there is no store yet, so nobody has enrolled")
    listed = Registry.load(file.clients) if file.clients and exists(file.clients) else Registry()
    with closing(ReadConnection(file.store.path)) as end:
        clients = enrolled_in(end.entries(JOURNAL), f"{file.store.path}, the journal of enrolments")
    revocations = {client: listed.revocation(client.channel) for client in clients}
    return [
        Member(
            client.name,
            client.channel.hex(),
            client.statement.hex(),
            (revoked.revoked_at or "yes") if revoked is not None else "",
        )
        for client, revoked in revocations.items()
    ]
