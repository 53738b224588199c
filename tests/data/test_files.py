import pickle
import sys

import h5py
import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from fedlangevin_mpi.data.files import Files
from fedlangevin_mpi.errors import ConfigError, ShardError

X = np.array([[0.5, -1.0], [2.0, 1e-30], [3.0, 4.0]])
Y = np.array([0, 1, 1])


def save_h5(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def save_table(path, x, y):
    frame = pd.DataFrame(x, columns=["age", "dose"]).assign(y=y)
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)


def save(path, x, y):
    if path.suffix in (".csv", ".parquet"):
        save_table(path, x, y)
    else:
        {".npz": np.savez, ".h5": save_h5}[path.suffix](path, x=x, y=y)


def load(path, client=0, total=1):
    return Files(path=str(path)).shards([client], total, seed=0)[0]


def problem(path):
    with pytest.raises(ShardError) as error:
        load(path)
    assert error.value.client == 0
    assert error.value.origin == str(path)
    return error.value.problem


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".csv", ".parquet"])
def test_a_shard_is_what_was_saved(tmp_path, suffix):
    for client in range(3):
        save(tmp_path / f"client-{client}{suffix}", X + client, Y)
    source = Files(path=f"{tmp_path}/client-{{client}}{suffix}")
    last, first = source.shards([2, 0], 3, seed=0)
    np.testing.assert_array_equal(first.arrays["x"], X)
    np.testing.assert_array_equal(last.arrays["x"], X + 2)
    np.testing.assert_array_equal(last.arrays["y"], Y)
    assert (last.client, last.origin) == (2, f"{tmp_path}/client-2{suffix}")
    assert last.features == (None if suffix in (".npz", ".h5") else ("age", "dose"))


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".csv", ".parquet"])
def test_only_the_asked_clients_files_are_opened(tmp_path, suffix):
    save(tmp_path / f"1{suffix}", X, Y)  # of 5 clients, only this one's file exists
    assert load(f"{tmp_path}/{{client}}{suffix}", client=1, total=5).client == 1


@pytest.mark.parametrize("save_archive", [np.savez, save_h5], ids=[".npz", ".h5"])
def test_potentials_of_any_kind(tmp_path, save_archive):
    path = tmp_path / ("a.npz" if save_archive is np.savez else "a.h5")
    arrays = {"weights": np.ones(2), "means": np.zeros((2, 3)), "covariances": np.ones((2, 3, 3))}
    save_archive(path, **arrays)
    found = load(path).arrays
    assert found.keys() == arrays.keys()
    assert found["covariances"].shape == (2, 3, 3)


def test_test_rows_are_those_of_all_clients_in_order(tmp_path):
    np.savez(tmp_path / "0.npz", x=X, y=Y, x_test=X[:1], y_test=Y[:1])
    np.savez(tmp_path / "1.npz", x=X, y=Y)
    np.savez(tmp_path / "2.npz", x=X, y=Y, x_test=X[1:], y_test=Y[1:])
    source = Files(path=f"{tmp_path}/{{client}}.npz")
    test = source.test_set(3, seed=0)
    np.testing.assert_array_equal(test.x, X)
    np.testing.assert_array_equal(test.y, Y)
    assert source.shards([0], 3, 0)[0].arrays.keys() == {"x", "y"}


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".csv", ".parquet"])
def test_no_test_rows_no_test_set(tmp_path, suffix):
    save(tmp_path / f"a{suffix}", X, Y)
    assert Files(path=f"{tmp_path}/a{suffix}").test_set(1, seed=0) is None


def test_truth_values_become_integers(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=Y == 1)
    assert load(tmp_path / "a.npz").arrays["y"].tolist() == [0, 1, 1]
    assert np.issubdtype(load(tmp_path / "a.npz").arrays["y"].dtype, np.integer)


def test_a_table_without_a_column_y_ends_with_it(tmp_path):
    (tmp_path / "a.csv").write_text("age, dose ,died\r\n1,2,0\r\n3,4,1\r\n")
    shard = load(tmp_path / "a.csv")
    np.testing.assert_array_equal(shard.arrays["x"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(shard.arrays["y"], [0, 1])
    assert shard.features == ("age", "dose")


def test_the_column_y_may_stand_anywhere(tmp_path):
    (tmp_path / "a.csv").write_text('\ufeff"y","age","dose"\n0,1,2\n1,3,4\n', encoding="utf-8")
    shard = load(tmp_path / "a.csv")
    np.testing.assert_array_equal(shard.arrays["x"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(shard.arrays["y"], [0, 1])


def test_preparation_names_the_intercept(tmp_path):
    save(tmp_path / "a.csv", X, Y)
    source = Files(path=str(tmp_path / "a.csv"), intercept=True)
    shard = source.prepared(source.shards([0], 1, 0)[0], None)
    assert shard.features == ("age", "dose", "intercept")
    np.testing.assert_array_equal(shard.arrays["x"], np.column_stack([X, np.ones(3)]))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1,2\n3,4\n", "its first row is ['1', '2']; allowed: a header row with the columns' names"),
        ("age,y\n1,0\ntwo,1\n", "line 3, column 'age' holds 'two'; allowed: a number"),
        ("age,y\n1,0\n,1\n", "line 3, column 'age' holds ''; allowed: a number"),
        ("age,y\n1,0\n1,2,3\n", "line 3 has 3 cells; allowed: 2, one a column"),
        ("age,y\n1,2,3\n1,2,3\n", "line 2 has 3 cells; allowed: 2, one a column"),
        ("y\n1\n", "it has the columns ['y']; allowed: at least one feature, and y"),
        ("y,age,y\n1,2,3\n", "it has several columns named y; allowed: one"),
    ],
)
def test_what_is_wrong_in_a_csv(tmp_path, text, found):
    (tmp_path / "a.csv").write_text(text)
    assert problem(tmp_path / "a.csv") == f"cannot be read: {found}"


def test_a_header_without_rows(tmp_path):
    (tmp_path / "a.csv").write_text("age,y\n")
    assert problem(tmp_path / "a.csv") == "array 'x' is empty: shape (0, 1)"


def test_a_parquet_column_of_text(tmp_path):
    pd.DataFrame({"name": ["a", "b"], "y": [0, 1]}).to_parquet(tmp_path / "a.parquet")
    assert "column 'name' has dtype" in problem(tmp_path / "a.parquet")


def test_a_missing_value_in_parquet(tmp_path):
    pd.DataFrame({"age": pd.array([1, None], dtype="Int64"), "y": [0, 1]}).to_parquet(tmp_path / "a.parquet")
    assert problem(tmp_path / "a.parquet").startswith("array 'x' holds nan at row 1, column 0")


def test_parquet_without_its_extra(tmp_path, monkeypatch):
    save(tmp_path / "a.parquet", X, Y)
    monkeypatch.setitem(sys.modules, "pandas", None)  # makes the import fail
    assert "pip install 'fedlangevin_mpi[parquet]'" in problem(tmp_path / "a.parquet")


class Bomb:
    """Unpickling it fails the test."""

    def __reduce__(self):
        return pytest.fail, ("a pickle was loaded",)


def test_pickles_are_never_loaded(tmp_path):
    np.savez(tmp_path / "inside.npz", x=np.array([Bomb()], dtype=object), y=Y)
    (tmp_path / "whole.npz").write_bytes(pickle.dumps({"x": Bomb()}))
    for name in ("inside.npz", "whole.npz"):
        assert "pickles are never loaded" in problem(tmp_path / name)


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".parquet"])
def test_a_truncated_file(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    save(path, X, Y)
    path.write_bytes(path.read_bytes()[:-40])
    assert problem(path).startswith("cannot be read: ")


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".csv", ".parquet"])
def test_an_empty_file(tmp_path, suffix):
    (tmp_path / f"a{suffix}").touch()
    assert problem(tmp_path / f"a{suffix}") == "cannot be read: it is empty (0 bytes)"


def test_a_missing_file_is_named_by_its_full_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ShardError) as error:
        load("shards/client-{client:03d}.npz", client=7, total=9)
    path = tmp_path / "shards/client-007.npz"
    assert str(error.value) == f"client 7 ({path}): no such file; clients are numbered from 0"


@pytest.mark.parametrize(
    ("arrays", "found"),
    [
        ({"x": np.array([[1, 2], [3, np.nan]])}, "array 'x' holds nan at row 1, column 1 (counted from 0)"),
        ({"y": np.array([1, -np.inf])}, "array 'y' holds -inf at row 1 (counted from 0)"),
        ({"covariances": np.full((1, 1, 1), np.inf)}, "array 'covariances' holds inf at index (0, 0, 0)"),
        ({"x": np.array(["a"])}, "array 'x' has dtype <U1; allowed: real numbers"),
        ({"x": np.ones(2, complex)}, "array 'x' has dtype complex128; allowed: real numbers"),
        ({"x": np.ones((0, 3))}, "array 'x' is empty: shape (0, 3)"),
        ({}, "it holds no arrays"),
        ({"x": X, "x_test": X}, "it holds one of x_test and y_test; allowed: both or neither"),
        ({"x": X, "x_test": X, "y_test": Y[:2]}, "x_test has shape (3, 2), y_test (2,); allowed: (m, p) and (m,)"),
        ({"x": X, "x_test": X[:, :1], "y_test": Y}, "x_test has shape (3, 1), x (3, 2); allowed: as many columns"),
    ],
)
def test_what_is_wrong_in_an_array(tmp_path, arrays, found):
    np.savez(tmp_path / "a.npz", **arrays)
    assert problem(tmp_path / "a.npz").startswith(found)


def test_groups_of_an_h5_are_not_searched(tmp_path):
    save_h5(tmp_path / "a.h5", **{"group/x": X})
    assert problem(tmp_path / "a.h5") == "it holds no arrays at its top level"


def test_one_file_for_several_clients_is_refused(tmp_path):
    save(tmp_path / "a.npz", X, Y)
    with pytest.raises(
        ConfigError, match=r"data\.path: found .*a\.npz' for 2 clients; allowed: a path with \{client\}"
    ):
        load(tmp_path / "a.npz", total=2)


@pytest.mark.parametrize("path", ["a.txt", "a", "", "a.pkl", "{client}"])
def test_a_suffix_that_names_no_format_is_refused(path):
    with pytest.raises(ValidationError, match=r"allowed: a file name that ends in \.npz, \.h5, \.csv, \.parquet"):
        Files(path=path)


@pytest.mark.parametrize("path", ["{rank}.npz", "{}.npz", "{client.npz", "{client:z}.npz", "{client.x}.npz"])
def test_a_placeholder_that_is_not_the_client_is_refused(path):
    with pytest.raises(ValidationError, match=r"no placeholder but \{client\}"):
        Files(path=path)
