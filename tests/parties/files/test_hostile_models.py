"""Model files that promise more than they hold: refused before memory is reserved for it."""

import zipfile

import numpy as np
import pytest

from fsl_async.errors import MisuseError
from parties.files.models import load_model


def test_a_model_that_declares_more_than_its_file_can_hold_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    np.savez_compressed(path, items=np.zeros(100, np.float32))
    data = path.read_bytes()
    entry = data.index(b"PK\x01\x02")  # the archive's own table, which says how long a member becomes
    path.write_bytes(data[: entry + 24] + (2**32 - 2).to_bytes(4, "little") + data[entry + 28 :])
    with pytest.raises(MisuseError, match=r"items\.npy declares 4,294,967,294 bytes, in a file of \d+"):
        load_model(path)


def test_a_model_compressed_in_another_way_is_refused(tmp_path):
    np.save(tmp_path / "items.npy", np.zeros(100, np.float32))
    with zipfile.ZipFile(tmp_path / "model.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.write(tmp_path / "items.npy", "items.npy")
    with pytest.raises(MisuseError, match=r"items\.npy is compressed in a way that NumPy does not write"):
        load_model(tmp_path / "model.npz")


def test_zeros_are_read_however_well_they_compress(tmp_path):
    np.savez_compressed(tmp_path / "model.npz", items=np.zeros(10**7, np.float32))
    assert (tmp_path / "model.npz").stat().st_size < 10**5
    assert not load_model(tmp_path / "model.npz")["items"].any()
