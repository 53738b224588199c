"""Predictive metrics, against scikit-learn and small cases by hand."""

import math

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.calibration import calibration_curve
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from fedlangevin_mpi.evaluate import predictive


@pytest.fixture
def predictions():
    rng = np.random.default_rng(3)
    probabilities = rng.dirichlet([0.5, 0.5, 1.0], size=500)
    return probabilities, rng.integers(0, 3, size=500)


def test_metrics_are_those_of_scikit_learn(predictions):
    probabilities, y = predictions
    found = predictive.metrics(probabilities, y)
    assert list(found) == ["accuracy", "ece", "mce", "brier", "nll"]
    assert found["accuracy"] == pytest.approx(accuracy_score(y, probabilities.argmax(1)))
    assert found["nll"] == pytest.approx(log_loss(y, probabilities))
    assert found["brier"] == pytest.approx(brier_score_loss(y, probabilities))


def test_calibration_is_that_of_scikit_learns_curve(predictions):
    probabilities, y = predictions
    right, confidence = probabilities.argmax(1) == y, probabilities.max(1)
    accuracies, confidences = calibration_curve(right, confidence, n_bins=15)  # of the bins that are not empty
    table = predictive.reliability(probabilities, y)
    used = table.counts > 0
    np.testing.assert_allclose(table.accuracy[used], accuracies)
    np.testing.assert_allclose(table.confidence[used], confidences)
    gaps = np.abs(accuracies - confidences)
    assert predictive.ece(probabilities, y) == pytest.approx((gaps * table.counts[used]).sum() / 500)
    assert predictive.mce(probabilities, y) == pytest.approx(gaps.max())


def test_small_case_by_hand():
    probabilities = np.array([[0.8, 0.2], [0.7, 0.3], [0.4, 0.6], [0.05, 0.95]])
    y = np.array([0, 1, 1, 1])
    found = predictive.metrics(probabilities, y)
    assert found["accuracy"] == 0.75
    assert found["nll"] == pytest.approx(-np.log([0.8, 0.3, 0.6, 0.95]).mean())
    assert found["brier"] == pytest.approx(2 * (0.2**2 + 0.7**2 + 0.4**2 + 0.05**2) / 4)
    table = predictive.reliability(probabilities, y, bins=4)
    np.testing.assert_array_equal(table.edges, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(table.counts, [0, 0, 2, 2])
    np.testing.assert_allclose(table.confidence, [np.nan, np.nan, 0.65, 0.875])
    np.testing.assert_allclose(table.accuracy, [np.nan, np.nan, 0.5, 1])
    assert predictive.ece(probabilities, y, bins=4) == pytest.approx((0.15 + 0.125) / 2)
    assert predictive.mce(probabilities, y, bins=4) == pytest.approx(0.15)


def test_a_confidence_on_an_edge_belongs_to_the_bin_below():
    table = predictive.reliability(np.array([[0.5, 0.5], [1.0, 0.0], [0.75, 0.25]]), np.array([0, 0, 0]), bins=4)
    np.testing.assert_array_equal(table.counts, [0, 1, 1, 1])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_lost_probability_costs_what_the_type_resolves(dtype):
    found = predictive.nll(np.array([[1, 0]], dtype), np.array([1]))
    assert found == pytest.approx(-math.log(np.finfo(dtype).eps))


def test_labels_stored_as_floats_are_labels():
    probabilities = np.array([[0.1, 0.9], [0.6, 0.4]], np.float32)
    assert predictive.metrics(probabilities, np.array([1.0, 1.0]))["accuracy"] == 0.5


def test_agreement_and_total_variation():
    p = np.array([[0.6, 0.4], [0.2, 0.8], [0.5, 0.5]])
    q = np.array([[0.4, 0.6], [0.1, 0.9], [0.9, 0.1]])
    assert predictive.agreement(p, q) == pytest.approx(2 / 3)
    assert predictive.total_variation(p, q) == pytest.approx((0.2 + 0.1 + 0.4) / 3)
    assert predictive.total_variation(np.eye(2), np.eye(2)[::-1]) == 1


def test_regression_metrics_are_those_of_the_mixture():
    means, y = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]]), np.array([2.5, 0.0])
    found = predictive.regression_metrics(means, y, 0.7)
    assert found["rmse"] == pytest.approx(math.sqrt((0.5**2 + 1) / 2))
    assert found["nll"] == pytest.approx(-np.log(norm.pdf(y, means, 0.7).mean(0)).mean())


def test_regression_far_from_every_draw_stays_finite():
    found = predictive.regression_metrics(np.zeros((3, 1)), np.array([100.0]), 1.0)
    assert found["nll"] == pytest.approx(5000 + math.log(2 * math.pi) / 2)


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_posterior_predictive_is_the_mean_over_all_draws(chunk):
    rng = np.random.default_rng(0)
    positions, x = rng.normal(size=(7, 2)), rng.normal(size=(5, 2))
    largest = 0

    def predict(some, rows):
        nonlocal largest
        largest = max(largest, len(some))
        one = 1 / (1 + np.exp(-some @ rows.T))
        return np.stack([1 - one, one], axis=-1).astype(np.float32)

    found = predictive.posterior_predictive(predict, positions, x, chunk)
    assert found.dtype == np.float64
    assert largest == min(chunk, 7)
    np.testing.assert_allclose(found, predict(positions, x).mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    ("probabilities", "y", "problem"),
    [
        ([[0.5, 0.5]], [0, 1], r"shape \(1, 2\) and labels \(2,\)"),
        (np.empty((0, 2)), [], r"shape \(0, 2\)"),
        ([[0.5, 0.5], [np.nan, 1]], [0, 1], "row 1 holds the probabilities"),
        ([[1.5, -0.5]], [0], "row 0 holds the probabilities"),
        ([[0.9, 0.2]], [0], "row 0 holds the probabilities"),
        ([[0.5, 0.5], [0.5, 0.5]], [0, 2], "row 1 has label 2; allowed: 0 to 1"),
        ([[0.5, 0.5]], [0.5], "row 0 has label 0.5"),
        ([[0.5, 0.5]], [-1], "row 0 has label -1"),
    ],
)
def test_predictions_that_make_no_sense_are_refused(probabilities, y, problem):
    with pytest.raises(ValueError, match=problem):
        predictive.metrics(np.array(probabilities), np.array(y))


def test_every_draw_may_have_a_noise_scale_of_its_own():
    means, y, scales = np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([0.5, 2.5]), np.array([[0.5], [2.0]])
    densities = norm(means, scales).pdf(y)
    found = predictive.regression_metrics(means, y, scales)["nll"]
    assert found == pytest.approx(-np.log(densities.mean(0)).mean(), rel=1e-12)


def test_other_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="no draws"):
        predictive.posterior_predictive(lambda p, x: p, np.empty((0, 3)), np.empty((2, 2)))
    with pytest.raises(ValueError, match=r"shapes \(2, 2\) and \(3, 3\)"):
        predictive.agreement(np.eye(2), np.eye(3))
    with pytest.raises(ValueError, match=r"means have shape \(2,\)"):
        predictive.regression_metrics(np.zeros(2), np.zeros(2), 1.0)
    with pytest.raises(ValueError, match="noise_scale is 0"):
        predictive.regression_metrics(np.zeros((1, 2)), np.zeros(2), 0.0)
