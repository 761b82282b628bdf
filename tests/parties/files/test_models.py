"""Models in files: what is written comes back, a file appears whole, and a damaged one is refused with a message."""

import json
import os
import random
import stat
import struct
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fsl_async.errors import MisuseError, StorageError
from parties.files import disk
from parties.files.models import ModelForm, checkpoint, checkpoints, load_model, save_model

FORMS = [".npz", ".safetensors"]
DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "bool", "c8"]


@pytest.fixture(params=FORMS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"model{request.param}"


def check_same(read: dict[str, np.ndarray], model: dict[str, np.ndarray]) -> None:
    assert sorted(read) == sorted(model)
    for name, array in model.items():
        assert read[name].dtype == array.dtype.newbyteorder("=")
        assert read[name].shape == array.shape
        assert read[name].tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()
        assert read[name].flags.writeable


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_every_type_come_back_bit_for_bit(path, dtype):
    noise = np.frombuffer(random.Random(dtype).randbytes(480), np.uint8)
    bits = (noise & 1) if dtype == "bool" else noise  # any bits at all are a number, also one that is none (NaN)
    model = {"items": bits.view(dtype).reshape(2, 3, -1), "none": np.zeros((0, 4), dtype), "one": np.ones((), dtype)}
    save_model(path, model)
    check_same(load_model(path), model)


@pytest.mark.parametrize(
    "name", ["items", "file", "allow_pickle", "a name with spaces", "größe", "a/b", "a.npy", "", "."]
)
def test_arrays_of_any_name_come_back(path, name):
    model = {name: np.arange(6).reshape(2, 3), "other": np.ones(2, np.float16)}
    save_model(path, model)
    check_same(load_model(path), model)


def test_memory_order_and_byte_order_become_the_machines_own(path):
    square = np.arange(12, dtype=np.float32).reshape(3, 4)
    model = {
        "columns first": np.asfortranarray(square),
        "every second": square[:, ::2],
        "backwards": square[::-1],
        "transposed": square.T,
        "big-endian": square.astype(">f4"),
        "broadcast": np.broadcast_to(square[0], (5, 4)),
    }
    save_model(path, model)
    check_same(load_model(path), model)
    assert all(array.flags.c_contiguous and array.dtype.isnative for array in load_model(path).values())


def test_other_programs_read_what_is_written_and_the_other_way_round(tmp_path):
    model = {"items": np.arange(6, dtype=np.float32).reshape(2, 3)}
    save_model(tmp_path / "ours.npz", model)
    with np.load(tmp_path / "ours.npz") as theirs:
        check_same(dict(theirs), model)
    save_model(tmp_path / "ours.safetensors", model)
    check_same(load_file(tmp_path / "ours.safetensors"), model)
    np.savez_compressed(tmp_path / "theirs.npz", **model)
    save_file(model, tmp_path / "theirs.safetensors", metadata={"format": "np"})
    for form in FORMS:
        check_same(load_model(tmp_path / f"theirs{form}"), model)


def test_the_form_is_the_end_of_the_name_in_any_case(tmp_path):
    for name in ("MODEL.NPZ", "Model.SafeTensors"):
        save_model(tmp_path / name, {"a": np.ones(3)})
        check_same(load_model(tmp_path / name), {"a": np.ones(3)})


@pytest.mark.parametrize("name", ["model", "model.npy", "model.pt", "model.npz.gz", ".npz"])
def test_another_form_is_refused_by_both_names(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    for function in (load_model, lambda path: save_model(path, {"a": np.ones(3)})):
        with pytest.raises(MisuseError, match=r"its name must end in \.npz or \.safetensors"):
            function(tmp_path / name)


def test_a_file_is_for_its_owner_alone_and_no_other_is_left(path):
    before = os.umask(0)
    try:
        save_model(path, {"a": np.ones(3)})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("form", "array"),
    [
        (".npz", np.array([{}])),
        (".safetensors", np.array([{}])),
        (".safetensors", np.array(["x"])),
        (".safetensors", np.zeros(2, np.longdouble)),
        (".safetensors", np.zeros(2, [("a", "f4")])),
    ],
    ids=["objects", "objects too", "text", "80 bits", "structures"],
)
def test_what_a_form_cannot_hold_is_refused_and_the_old_file_stays(tmp_path, form, array):
    path = tmp_path / f"model{form}"
    save_model(path, {"a": np.zeros(3)})
    with pytest.raises(MisuseError, match=r"Object arrays cannot be saved: b is|cannot hold 'b' of"):
        save_model(path, {"a": np.ones(3), "b": array})
    check_same(load_model(path), {"a": np.zeros(3)})
    assert os.listdir(tmp_path) == [path.name]


def test_the_one_name_that_a_form_keeps_for_itself_is_refused(tmp_path):
    with pytest.raises(MisuseError, match="cannot hold '__metadata__'"):
        save_model(tmp_path / "model.safetensors", {"__metadata__": np.zeros(3)})


def test_a_write_that_fails_leaves_the_old_file_and_says_why(path, monkeypatch):
    save_model(path, {"a": np.zeros(3)})

    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk.os, "fsync", fails)
    with pytest.raises(StorageError, match=r"cannot be written: the disk is full; free some of it"):
        save_model(path, {"a": np.ones(3)})
    monkeypatch.undo()
    check_same(load_model(path), {"a": np.zeros(3)})
    assert os.listdir(path.parent) == [path.name]


def test_a_missing_folder_is_refused(path):
    with pytest.raises(StorageError, match="cannot be written: its folder does not exist; create it"):
        save_model(path.parent / "missing" / path.name, {"a": np.zeros(3)})


# Damaged and hostile files


def safetensors(header: object, data: bytes = b"", length: int = -1) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length < 0 else length) + text + data


def entry(kind: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": kind, "shape": shape, "data_offsets": offsets}


SAFETENSORS_JUNK = {
    "empty": b"",
    "text": b"a, b",
    "longer than the file": safetensors({"a": entry()}, bytes(8), 90_000_000),
    "longer than memory": safetensors({"a": entry()}, bytes(8), 1 << 62),
    "cut": safetensors({"a": entry()}, bytes(7)),
    "more": safetensors({"a": entry()}, bytes(9)),
    "shape": safetensors({"a": entry(shape=(1 << 62, 1 << 62))}, bytes(8)),
    "negative": safetensors({"a": entry(shape=(-2,))}, bytes(8)),
    "overlap": safetensors({"a": entry(), "b": entry()}, bytes(8)),
    "deep": safetensors(b"[" * 1_000_000),
    "deep in metadata": safetensors(b'{"__metadata__":' + b"[" * 1_000_000),
    "unknown type": safetensors({"a": entry("F33")}, bytes(8)),
}


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + data


def npy_of(shape: str, descr: str = "'<f8'", data: bytes = b"") -> bytes:
    return npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n", data)


NPY_JUNK = {
    "empty": b"",
    "text": b"not an array",
    "absurd": npy_of("(1000000000000000,)"),
    "overflow": npy_of(f"({1 << 62}, {1 << 62})"),
    "larger": npy_of("(10,)", data=bytes(79)),
    "negative": npy_of("(-1,)", data=bytes(8)),
    "no shape": npy_of("'x'"),
    "float shape": npy_of("(1.5,)", data=bytes(8)),
    "unclosed": npy("{'descr': ('''"),
    "nested": npy("(" * 9000),
    "negated": npy("-" * 9000 + "1"),
    "unhashable": npy("{[]: 1}"),
    "code": npy("__import__('os').system('touch hacked')"),
    "no bytes": npy("", version=2),
    "later version": npy("{}", version=9),
    "object": npy_of("(1,)", "'|O'", b"cos\nsystem\n(S'touch hacked'\ntR."),
    "structure": npy_of("(1,)", "[('a', '<f8', (1000000000, 1000000000))]"),
    "no type": npy_of("(1,)", "'?!'"),
    "two types": npy_of("(1,)", "['<f8', '<f8']"),
}


@pytest.mark.parametrize("kind", SAFETENSORS_JUNK)
def test_a_hostile_safetensors_file_is_refused(tmp_path, kind):
    (tmp_path / "m.safetensors").write_bytes(SAFETENSORS_JUNK[kind])
    with pytest.raises(MisuseError, match=r"m\.safetensors cannot be read as a model"):
        load_model(tmp_path / "m.safetensors")


@pytest.mark.parametrize("kind", NPY_JUNK)
def test_a_hostile_npz_file_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("m.npz", "w") as archive:
        archive.writestr("a.npy", NPY_JUNK[kind])
    with pytest.raises(MisuseError, match=r"m\.npz cannot be read as a model"):
        load_model(Path("m.npz"))
    assert os.listdir() == ["m.npz"]


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "F8_E5M2"])
def test_types_that_numpy_does_not_have_are_refused_by_name(tmp_path, kind):
    data = bytes(4 if kind == "BF16" else 2)
    (tmp_path / "m.safetensors").write_bytes(safetensors({"items": entry(kind, (2,), (0, len(data)))}, data))
    with pytest.raises(MisuseError, match=f"items is of {kind}, which has no NumPy type; convert it to F32 or F16"):
        load_model(tmp_path / "m.safetensors")


def test_two_arrays_of_one_name_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        for name in ("a", "a.npy"):
            with archive.open(name, "w") as member:
                np.lib.format.write_array(member, np.zeros(3))
    with pytest.raises(MisuseError, match="two of its arrays have one name"):
        load_model(tmp_path / "m.npz")


def _refusal(path):
    with pytest.raises(MisuseError) as refused:
        load_model(path)
    words = str(refused.value)
    assert words.startswith(f"{path} cannot be read as a model: ")
    assert "Errno" not in words
    return words


def test_a_missing_file_is_refused_with_what_to_do(path):
    assert "there is no such file; check the name, or save a model there first" in _refusal(path)


def test_what_is_no_file_is_refused_and_not_waited_for(path):
    path.mkdir()
    assert "it is a folder; name a file in it" in _refusal(path)
    assert "what should be its folder is a file" in _refusal(Path(__file__) / path.name)
    os.mkfifo(path.with_stem("pipe"))
    assert "it is no regular file" in _refusal(path.with_stem("pipe"))


def test_names_that_no_file_can_have_are_refused(path):
    assert "File name too long" in _refusal(path.with_stem("x" * 300))
    assert "check the name" in _refusal(path.with_stem("a\0b"))


def test_a_file_that_is_not_ours_to_read_is_refused_with_what_to_do(path):
    save_model(path, {"a": np.zeros(3)})
    path.chmod(0)
    with _as_nobody():
        words = _refusal(path)
    assert "permission denied; the user who runs the command must be allowed to read it" in words


@contextmanager
def _as_nobody():
    """Root may read everything, so it is somebody else for as long as the block lasts."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_file_that_is_not_the_form_its_name_says_is_refused(tmp_path):
    for ours, other in (FORMS, FORMS[::-1]):
        save_model(tmp_path / f"model{ours}", {"a": np.zeros(3)})
        (tmp_path / f"model{ours}").rename(tmp_path / f"renamed{other}")
        with pytest.raises(MisuseError, match=rf"cannot be read as a model \({other}\)"):
            load_model(tmp_path / f"renamed{other}")


# Checkpoints


@pytest.mark.parametrize("form", ModelForm)
def test_a_checkpoint_is_named_by_its_round(tmp_path, form):
    made = checkpoint(tmp_path, 12, {"a": np.full(3, 12.0)}, form)
    assert made.path == tmp_path / f"round-00000012{form.value}"
    check_same(load_model(made.path), {"a": np.full(3, 12.0)})
    assert checkpoints(tmp_path)[-1] == made


def test_checkpoints_are_listed_by_round(tmp_path):
    for number in (3, 100_000_001, 99_999_999, 10):
        checkpoint(tmp_path, number, {"a": np.ones(1)})
    for other in ("round-00000200.npz.tmp", "round-2.npz", "xround-00000300.npz", ".round-00000400.npz-x", "notes"):
        (tmp_path / other).touch()
    assert [made.number for made in checkpoints(tmp_path)] == [3, 10, 99_999_999, 100_000_001]


def test_a_checkpoint_is_made_anew_in_its_place(tmp_path):
    checkpoint(tmp_path, 1, {"a": np.zeros(1)})
    checkpoint(tmp_path, 1, {"a": np.ones(1)})
    check_same(load_model(checkpoints(tmp_path)[-1].path), {"a": np.ones(1)})
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize(
    ("keep", "left"), [(0, [1, 2, 3, 4, 5]), (1, [5]), (2, [4, 5]), (5, [1, 2, 3, 4, 5]), (9, [1, 2, 3, 4, 5])]
)
def test_so_many_checkpoints_are_kept(tmp_path, keep, left):
    for number in (1, 2, 3, 4, 5):
        checkpoint(tmp_path, number, {"a": np.ones(1)}, keep=keep)
    assert [made.number for made in checkpoints(tmp_path)] == left


def test_checkpoints_of_later_rounds_and_other_files_are_not_removed(tmp_path):
    (tmp_path / "round-notes.npz").touch()
    for number in (7, 8, 1, 2, 3):
        checkpoint(tmp_path, number, {"a": np.ones(1)}, keep=2)
    assert [made.number for made in checkpoints(tmp_path)] == [2, 3, 7, 8]
    assert (tmp_path / "round-notes.npz").exists()


def test_folders_without_checkpoints_say_so(tmp_path):
    assert checkpoints(tmp_path) == []
    with pytest.raises(MisuseError, match="cannot be read as a folder of checkpoints"):
        checkpoints(tmp_path / "missing")
    with pytest.raises(StorageError, match="its folder does not exist"):
        checkpoint(tmp_path / "missing", 1, {"a": np.ones(1)})
