import numpy as np
import pytest
from pydantic import ValidationError

from fedlangevin_mpi.data.one_file import OneFile
from fedlangevin_mpi.errors import ConfigError


def test_a_table_is_dealt_to_clients(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y,b\n" + "".join(f"{i},{i / 10},{-i}\n" for i in range(10)))
    source = OneFile(path=str(path), test_fraction=0.2)
    shards = source.shards([0, 1], 2, 0)
    rows = np.concatenate([*(s.arrays["x"] for s in shards), source.test_set(2, 0).x])
    np.testing.assert_array_equal(np.sort(rows[:, 0]), np.arange(10))
    assert shards[0].features == ("a", "b")
    np.testing.assert_allclose(shards[0].arrays["x"][:, 0] / 10, shards[0].arrays["y"])


def test_whole_numbers_are_labels(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n0.5,1\n1.5,0\n")
    assert OneFile(path=str(path)).table()[1].dtype == np.int64


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a,y\n", "no rows"), ("a,y\n1,nan\n", "row 0 .* not finite"), ("a,y\n1,b\n", "line 2, column 'y' holds 'b'")],
)
def test_a_bad_table_is_named(text, problem, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"data\.path: .*t\.csv cannot be read: .*{problem}"):
        OneFile(path=str(path)).table()
    with pytest.raises(ConfigError, match=r"absent\.csv cannot be read"):
        OneFile(path=str(tmp_path / "absent.csv")).table()
    with pytest.raises(ValidationError, match=r"ends in \.csv, \.parquet"):
        OneFile(path="t.npz")
