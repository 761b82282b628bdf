"""MNIST's and CIFAR-10's files: what is read of them, and what is refused. The sets are made here."""

import gzip
import pickle
import struct

import numpy as np
import pytest

from examples.paper.accuracy.images import CIFAR_BATCHES, CIFAR_TEST, load_cifar10, load_mnist, read_idx
from fsl_async import MisuseError


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def mnist(tmp_path):
    rng = np.random.default_rng(1)
    for part, count in (("train", 6), ("t10k", 3)):
        pixels = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8)
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(pixels)))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    return tmp_path


def test_mnist_is_read_from_its_four_files(mnist):
    train, test = load_mnist(mnist)
    assert (len(train), len(test), train.pixels.shape, train.pixels.dtype) == (6, 3, (6, 1, 28, 28), np.float32)
    raw = read_idx(mnist / "train-images-idx3-ubyte.gz", 3)
    assert np.array_equal(train.pixels[:, 0], raw.astype(np.float32) / np.float32(255))
    assert train.labels.tolist() == list(range(6))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("train-images-idx3-ubyte.gz", lambda data: data[:-20], "damaged or cut"),
        ("train-images-idx3-ubyte.gz", lambda data: b"not compressed", "cannot be read as a compressed IDX"),
        ("train-images-idx3-ubyte.gz", lambda data: gzip.compress(gzip.decompress(data)[:-1]), "bytes expected for"),
        ("train-images-idx3-ubyte.gz", lambda data: gzip.compress(b"\0\0\x0d\3" + bytes(99)), "begins 00000d03"),
        ("train-images-idx3-ubyte.gz", lambda data: gzip.compress(idx(np.zeros((6, 9, 9), np.uint8))), "28 × 28"),
        ("t10k-labels-idx1-ubyte.gz", lambda data: gzip.compress(idx(np.zeros(4, np.uint8))), "a label for each of 3"),
        ("t10k-labels-idx1-ubyte.gz", lambda data: gzip.compress(idx(np.full(3, 77, np.uint8))), "labels from 0 to 9"),
    ],
)
def test_a_damaged_file_of_mnist_is_refused_by_its_name(mnist, name, change, said):
    path = mnist / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(MisuseError, match=f"{name}.*{said}"):
        load_mnist(mnist)


def test_a_missing_file_of_mnist_is_refused_by_its_name(mnist):
    (mnist / "t10k-images-idx3-ubyte.gz").unlink()
    with pytest.raises(MisuseError, match=r"t10k-images-idx3-ubyte\.gz"):
        load_mnist(mnist)


def cifar(folder, form, count=4):
    """A made set in CIFAR-10's form: binary batches, or those for Python."""
    rng = np.random.default_rng(2)
    for name in (*CIFAR_BATCHES, CIFAR_TEST):
        pixels = rng.integers(0, 256, (count, 3072), dtype=np.uint8)
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        if form == "binary":
            (folder / f"{name}.bin").write_bytes(np.column_stack([labels, pixels]).tobytes())
        else:
            batch = {b"data": pixels, b"labels": labels.tolist(), b"batch_label": name.encode()}
            (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return folder


def test_cifar10_is_the_same_from_either_form_of_its_batches(tmp_path):
    (tmp_path / "binary").mkdir()
    (tmp_path / "python").mkdir()
    binary = load_cifar10(cifar(tmp_path / "binary", "binary"))
    python = load_cifar10(cifar(tmp_path / "python", "python"))
    for one, other, count in zip(binary, python, (20, 4), strict=True):
        assert one.pixels.shape == (count, 3, 32, 32)
        assert np.array_equal(one.pixels, other.pixels)
        assert np.array_equal(one.labels, other.labels)


def test_batches_for_python_name_numpy_as_it_was_when_they_were_written(tmp_path):
    for name in (*CIFAR_BATCHES, CIFAR_TEST):
        path = cifar(tmp_path, "python") / name
        path.write_bytes(path.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert len(load_cifar10(tmp_path)[0]) == 20


@pytest.mark.parametrize("form", ["binary", "python"])
def test_a_cut_batch_of_cifar10_is_refused_by_its_name(tmp_path, form):
    path = cifar(tmp_path, form) / ("data_batch_3.bin" if form == "binary" else "data_batch_3")
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(MisuseError, match="data_batch_3"):
        load_cifar10(tmp_path)


def test_a_missing_batch_of_cifar10_is_refused_by_its_name(tmp_path):
    with pytest.raises(MisuseError, match=r"data_batch_1: cannot be read .* six batches"):
        load_cifar10(tmp_path)


class Harmful:
    def __reduce__(self):
        return print, ("this pickle ran something",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (Harmful(), r"it names \w+.print"),
        ({b"data": np.zeros((2, 5), np.uint8), b"labels": [1, 2]}, r"uint8 \(n, 3072\)"),
        ({b"labels": [1, 2]}, "no batch of CIFAR-10 for Python"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 10]}, "labels from 0 to 9"),
        ([1, 2], "no batch of CIFAR-10 for Python"),
    ],
)
def test_a_pickle_that_is_no_batch_is_refused_and_runs_nothing(tmp_path, capsys, content, said):
    (cifar(tmp_path, "python") / "data_batch_1").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(MisuseError, match=f"data_batch_1.*{said}"):
        load_cifar10(tmp_path)
    assert capsys.readouterr().out == ""
