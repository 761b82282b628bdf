"""`[blobs]` of a server's file: where clients' public parts and other bulk lie; its store refers to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from fsl_async.errors import MisuseError
from parties.files.toml import About
from parties.settings.reading import InMemory, StoreSetting


class BlobsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where clients' bulk lies: in a folder, or in an object store."""

    folder: Annotated[
        Path | None,
        About(
            "the folder of clients' bulk, on a local disk, for this server alone; by default one beside the store, "
            "`s0.blobs` for `s0.sqlite`"
        ),
    ] = None
    url: Annotated[
        str,
        About(
            "an object store in the place of the folder, as bucket and path: s3://bucket/s0; it needs the extra "
            "`objects`. Workers on other hosts reach the bulk there"
        ),
    ] = ""
    options: Annotated[
        Path | None,
        About(
            "a TOML file of what the object store's client needs and the environment does not say: endpoint, region, "
            "access_key_id, secret_access_key; only its owner can read it"
        ),
    ] = None


def check_blobs(blobs: BlobsTable, store: StoreSetting, where: str) -> None:
    """Refuse two places, or one beside a store in memory.

    Raises:
        MisuseError: there is such a thing.
    """
    if blobs.folder is not None and blobs.url:
        raise MisuseError(f"{where}: blobs.folder and blobs.url are two places for the same bulk; remove one of them")
    if blobs.options is not None and not blobs.url:
        raise MisuseError(f"{where}: blobs.options are an object store's, and blobs.url names none; remove the line")
    if isinstance(store, InMemory) and (blobs.folder is not None or blobs.url):
        raise MisuseError(
            f'{where}: store = "memory" and a place for bulk that outlives it do not go together: name a file as the '
            "store, or remove [blobs]"
        )
