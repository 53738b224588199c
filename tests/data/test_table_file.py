"""Whole tables in one file, against small files written in their formats."""

import bz2
import gzip

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.datasets import dump_svmlight_file

from fedlangevin_mpi.data.table_file import Covertype, TableFile
from fedlangevin_mpi.errors import ConfigError

RNG = np.random.default_rng(0)
X = np.where(RNG.random((12, 5)) < 0.6, RNG.normal(size=(12, 5)), 0)
X[:, 4] = 0  # LIBSVM's files do not say that there is such a column
LABELS = np.array([-1, 1] * 6)


@pytest.fixture
def svm(tmp_path):
    path = tmp_path / "rows.svm"
    dump_svmlight_file(X, LABELS, str(path), zero_based=False)
    return path


def all_rows(source, clients=3):
    """Return the clients' rows and the test rows, sorted by their first nonzero feature sums."""
    shards = source.shards(range(clients), clients, 0)
    test = source.test_set(clients, 0)
    parts = [(shard.arrays["x"], shard.arrays["y"]) for shard in shards] + ([(test.x, test.y)] if test else [])
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(x.sum(1))
    return x[order], y[order], [shard.features for shard in shards]


def test_libsvm_rows_are_dealt_to_clients_with_class_numbers(svm):
    x, y, features = all_rows(TableFile(path=str(svm), labels=(-1, 1), features=5))
    order = np.argsort(X.sum(1))
    np.testing.assert_allclose(x, X[order], rtol=1e-15)
    np.testing.assert_array_equal(y, LABELS[order] == 1)
    assert np.issubdtype(y.dtype, np.integer)
    assert features == [None] * 3
    assert all_rows(TableFile(path=str(svm), labels=(1, -1)))[0].shape == (12, 4)
    np.testing.assert_array_equal(all_rows(TableFile(path=str(svm), labels=(1, -1)))[1], 1 - y)


@pytest.mark.parametrize(("suffix", "packer"), [(".gz", gzip), (".bz2", bz2)])
def test_packed_libsvm_files_are_the_same(svm, tmp_path, suffix, packer):
    packed = tmp_path / f"rows.libsvm{suffix}"
    packed.write_bytes(packer.compress(svm.read_bytes()))
    np.testing.assert_array_equal(all_rows(TableFile(path=str(packed)))[0], all_rows(TableFile(path=str(svm)))[0])


def test_a_csv_keeps_its_names_and_real_targets(tmp_path):
    (tmp_path / "rows.csv").write_text("a,y,b\n1,0.5,2\n3,1.5,4\n5,2.5,6\n")
    x, y, features = all_rows(TableFile(path=str(tmp_path / "rows.csv"), test_fraction=0))
    np.testing.assert_array_equal(x, [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(y, [0.5, 1.5, 2.5])
    assert features == [("a", "b")] * 3


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("missing.svm", None, "missing.svm: no such file"),
        ("zero.svm", "1 0:2.5\n", "zero.svm: cannot be read"),  # indices begin with 1
        ("words.svm", "one 1:x\n", "words.svm: cannot be read"),
        ("short.csv", "a,y\n1\n", "short.csv: cannot be read: line 2 has 1 cells; allowed: 2"),
        ("hole.csv", "a,y\nnan,1\n", "hole.csv: cannot be read: array 'x' holds nan at row 0, column 0"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, text, problem):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as error:
        TableFile(path=str(tmp_path / name)).read()
    assert "data.path: " in str(error.value)
    assert problem in str(error.value)


def test_other_labels_than_the_configs_are_refused(svm):
    with pytest.raises(ConfigError, match=r"data: row 0 has label -1; allowed: 1, 2"):
        TableFile(path=str(svm), labels=(1, 2)).read()


def test_an_index_above_the_number_of_features_is_refused(svm):
    with pytest.raises(ConfigError, match=r"rows.svm: cannot be read: .*n_features"):
        TableFile(path=str(svm), features=3).read()


@pytest.mark.parametrize("path", ["rows.txt", "rows.csv.gz", "rows"])
def test_other_formats_are_refused(path):
    with pytest.raises(ValidationError, match=r"allowed: a file name that ends in .csv, .parquet, .svm, .libsvm"):
        TableFile(path=path)


def covertype_rows():
    x = RNG.integers(0, 300, (30, 54))
    return x, np.arange(30) % 7 + 1


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("header", ["", "Elevation," + "X," * 53 + "Cover_Type\n", '"Elevation",' + "X," * 53 + "Y\n"])
def test_covertype_has_two_or_seven_classes(tmp_path, header, packed):
    x, cover = covertype_rows()
    text = header + "".join(",".join(map(str, [*row, kind])) + "\n" for row, kind in zip(x, cover, strict=True))
    path = tmp_path / ("covtype.data.gz" if packed else "covtype.data")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    found = Covertype(path=str(path), classes=7).read()
    np.testing.assert_array_equal(found.x, x)
    np.testing.assert_array_equal(found.y, cover - 1)
    np.testing.assert_array_equal(Covertype(path=str(path)).read().y, cover == 2)
    assert len(found.features) == 54
    assert found.features[0] == "elevation"
    assert len(set(found.features)) == 54


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1,2,3\n", "covtype.data: cannot be read: rows of 3 numbers; allowed: 54 features and the cover type"),
        ("0," * 54 + "8\n", "data: row 0 has label 8; allowed: 1, 2, 3, 4, 5, 6, 7"),
    ],
)
def test_what_is_no_covertype_is_refused(tmp_path, text, problem):
    (tmp_path / "covtype.data").write_text(text)
    with pytest.raises(ConfigError) as error:
        Covertype(path=str(tmp_path / "covtype.data")).read()
    assert problem in str(error.value)
