import numpy as np
import pytest
from sklearn import datasets

from fedlangevin_mpi.data.bundled import ScikitLearn, Titanic
from fedlangevin_mpi.data.partition import Dirichlet
from fedlangevin_mpi.errors import ConfigError


def test_titanic_counts():
    x, y = Titanic().table()
    cabin, age, sex = x.T
    assert x.shape == (2201, 3)
    assert y.sum() == 711
    assert [(cabin == c).sum() for c in range(4)] == [885, 325, 285, 706]
    assert [y[cabin == c].sum() for c in range(4)] == [212, 203, 118, 178]
    assert (age == 0).sum() == 109
    assert y[age == 0].sum() == 57
    assert (sex == 0).sum() == 470
    assert y[sex == 0].sum() == 344
    # One cell of the table, by all its coordinates: 14 men of the second class survived.
    assert y[(cabin == 2) & (age == 1) & (sex == 1)].sum() == 14


def test_titanic_defaults_are_the_papers_setting():
    source = Titanic()
    assert source.partition == Dirichlet(concentration=0.5)
    shards, test = source.shards(range(10), 10, 1), source.test_set(10, 1)
    assert test.x.shape == (441, 3)
    assert sum(len(shard.arrays["y"]) for shard in shards) == 1760
    standardization = source.standardization(source.moments(shards))
    ready = source.prepared(shards[0], standardization)
    assert ready.arrays["x"].shape[1] == 4
    assert ready.features == ("class", "age", "sex", "intercept")


@pytest.mark.parametrize(
    ("name", "rows", "columns", "classes"),
    [("breast_cancer", 569, 30, 2), ("digits", 1797, 64, 10), ("wine", 178, 13, 3), ("iris", 150, 4, 3)],
)
def test_scikit_learns_classes(name, rows, columns, classes):
    source = ScikitLearn(name=name)
    x, y = source.table()
    assert x.shape == (rows, columns)
    assert set(y) == set(range(classes))
    shard = source.shards([0], 2, 0)[0]
    assert shard.origin == name
    assert len(shard.features) == columns
    assert len(source.test_set(2, 0).y) == np.ceil(0.2 * rows)


def test_diabetes_is_a_regression_on_the_measured_values():
    x, _ = ScikitLearn(name="diabetes").table()
    np.testing.assert_array_equal(x, datasets.load_diabetes(scaled=False).data)
    assert x[:, 0].max() == 79  # years
    with pytest.raises(ConfigError, match="found dirichlet for continuous targets"):
        ScikitLearn(name="diabetes", partition=Dirichlet()).shards([0], 2, 0)
