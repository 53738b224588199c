import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as SklearnLogistic

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ShardError
from fedlangevin_mpi.generic import Everything, gradient, meaning
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.models.logistic import LogisticRegression
from fedlangevin_mpi.models.softmax import SoftmaxRegression


def test_two_classes_are_logistic_regression_in_the_difference_of_weights(row_shards, draw_rows):
    shards, facts = row_shards([6, 4], classes=2), Facts(3, 2)
    softmax, logistic = SoftmaxRegression(prior_scale=np.inf), LogisticRegression(prior_scale=np.inf)
    weights = np.random.default_rng(0).normal(size=(2, 5, 3, 2))
    theta, difference = weights.reshape(2, 5, 6), weights[..., 1] - weights[..., 0]
    two, one = (m.pack(shards, [0.5, 0.5], facts, np.float64) for m in (softmax, logistic))
    np.testing.assert_allclose(softmax.potential(theta, two), logistic.potential(difference, one), rtol=1e-12)
    for batch in (Everything(2), draw_rows([6, 4], 3, 5, 1)):
        slope = gradient(difference, one, batch, 0)
        expected = np.stack([-slope, slope], axis=-1).reshape(theta.shape)
        np.testing.assert_allclose(gradient(theta, two, batch, 0), expected, rtol=1e-10, atol=1e-12)


def test_full_gradient_adds_up_over_tiles(row_shards):
    shards = row_shards([300, 10], classes=3)
    model = SoftmaxRegression()
    data = model.pack(shards, [0.5, 0.5], Facts(3, 3), np.float64)
    theta = np.random.default_rng(0).normal(size=(2, 2, 9))
    text = meaning(gradient, type(data), Everything).compiled
    expected = gradient(theta, data, Everything(2), 0)
    np.testing.assert_allclose(text(theta, data, Everything(2), 0), expected, rtol=1e-10)


def test_extreme_scores_give_finite_exact_gradients():
    shard = Shard(0, {"x": np.array([[1e6], [-1e6]]), "y": np.array([2, 2])}, "far out")
    model = SoftmaxRegression(prior_scale=np.inf)
    data = model.pack([shard], [1.0], Facts(1, 3), np.float32)
    theta = np.array([[[0, 1, 2]]], np.float32)
    text = meaning(gradient, type(data), Everything).compiled
    for found in (gradient(theta, data, Everything(1), 0), text(theta, data, Everything(1), 0)):
        np.testing.assert_allclose(found[0, 0], [-1e6, 0, 1e6])
    np.testing.assert_allclose(model.potential(theta, data), 2e6)


def test_predicts_the_probabilities_of_all_classes():
    rng = np.random.default_rng(0)
    x, positions = rng.normal(size=(6, 2)), rng.normal(size=(4, 8))
    found = SoftmaxRegression().predict(positions, x, Facts(2, 4))
    for position, probabilities in zip(positions, found, strict=True):
        reference = SklearnLogistic()
        reference.coef_, reference.intercept_, reference.classes_ = position.reshape(2, 4).T, np.zeros(4), np.arange(4)
        np.testing.assert_allclose(probabilities, reference.predict_proba(x), rtol=1e-12)


def test_parameters_are_a_row_of_weights_a_feature():
    assert SoftmaxRegression().parameters(Facts(5, 3)) == {"weights": (5, 3)}
    assert SoftmaxRegression().dimension(Facts(5, 3)) == 15


@pytest.mark.parametrize(("classes", "expected"), [(None, 4), (6, 6)])
def test_classes_come_from_the_labels_unless_given(classes, expected):
    shard = Shard(0, {"x": np.ones((3, 2)), "y": np.array([0, 3, 1])}, "made up")
    assert SoftmaxRegression(classes=classes).facts(shard) == Facts(2, expected)


def test_one_label_everywhere_still_makes_two_classes():
    shard = Shard(0, {"x": np.ones((3, 2)), "y": np.zeros(3)}, "made up")
    assert SoftmaxRegression().facts(shard).classes == 2


def test_labels_outside_the_classes_are_refused():
    shard = Shard(1, {"x": np.ones((3, 2)), "y": np.array([0, 1, 3])}, "one.npz")
    with pytest.raises(ShardError, match=r"client 1 \(one.npz\): label 3 in row 2; allowed: 0 to 2"):
        SoftmaxRegression(classes=3).facts(shard)
