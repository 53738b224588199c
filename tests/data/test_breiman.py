"""The laws of Breiman's problems: moments of every class, and the error of the Bayes rule."""

import numpy as np
import pytest
from scipy import stats

from fedlangevin_mpi.data.breiman import Norms, Waveform

ROWS = 60_000
WAVES = np.array([[max(6 - abs(i - peak), 0) for i in range(1, 22)] for peak in (11, 15, 7)])


def drawn(source, seed=5):
    arrays = source.model_copy(update={"rows": ROWS}).shards([1], 2, seed)[0].arrays
    return arrays["x"], arrays["y"]


def assert_moments(x, mean, covariance):
    scale = np.sqrt(np.diag(covariance))
    assert (np.abs(x.mean(0) - mean) < 4.5 * scale / np.sqrt(len(x))).all()
    np.testing.assert_allclose(np.cov(x.T) / np.outer(scale, scale), covariance / np.outer(scale, scale), atol=0.05)


def assert_error(wrong, exact):
    assert abs(wrong.mean() - exact) < 4 * np.sqrt(exact * (1 - exact) / len(wrong))


def test_twonorm():
    x, y = drawn(Norms(name="twonorm"))
    for label, sign in ((0, 1), (1, -1)):
        assert_moments(x[y == label], np.full(20, sign * 2 / np.sqrt(20)), np.eye(20))
    assert_error((x.sum(1) < 0) != (y == 1), stats.norm.cdf(-2))


def test_ringnorm():
    x, y = drawn(Norms(name="ringnorm"))
    a = np.full(20, 2 / np.sqrt(20))
    assert_moments(x[y == 0], np.zeros(20), 4 * np.eye(20))
    assert_moments(x[y == 1], a, np.eye(20))
    # log N(x | a, I) > log N(x | 0, 4 I)  <=>  |x - 4a/3|^2 < 8/3 (10 log 4 + |a|^2 / 6), |a| = 2.
    bound = 8 / 3 * (10 * np.log(4) + 4 / 6)
    missed = stats.ncx2.sf(bound, 20, 4 / 9)
    false = stats.ncx2.cdf(bound / 4, 20, 64 / 9 / 4)
    assert_error((np.square(x - 4 / 3 * a).sum(1) < bound) != (y == 1), (missed + false) / 2)
    assert (missed + false) / 2 == pytest.approx(0.0124, abs=1e-4)


def test_waveform():
    x, y = drawn(Waveform())
    pairs = [(0, 1), (0, 2), (1, 2)]
    log_densities = np.empty((len(x), 3))
    for label, (a, b) in enumerate(pairs):
        off = WAVES[a] - WAVES[b]
        assert_moments(x[y == label], (WAVES[a] + WAVES[b]) / 2, np.eye(21) + np.outer(off, off) / 12)
        # The density integrates N(x | u h_a + (1 - u) h_b, I) over u: a normal density in u between 0 and 1.
        precision, slope = off @ off, (x - WAVES[b]) @ off
        mode = slope / precision
        law = stats.norm(mode, 1 / np.sqrt(precision))
        log_densities[:, label] = slope * mode / 2 - np.square(x - WAVES[b]).sum(1) / 2 - np.log(precision) / 2
        log_densities[:, label] += np.log(law.cdf(1) - law.cdf(0))
    error = (log_densities.argmax(1) != y).mean()
    assert error == pytest.approx(0.14, abs=0.01)  # as the book says


@pytest.mark.parametrize("source", [Norms(name="twonorm"), Norms(name="ringnorm"), Waveform(), Waveform(binary=True)])
def test_classes_are_equally_probable_and_a_client_has_rows_of_its_own(source):
    shares = np.bincount(drawn(source)[1]) / ROWS
    expected = {"waveform": [2 / 3, 1 / 3] if getattr(source, "binary", False) else [1 / 3] * 3}
    np.testing.assert_allclose(shares, expected.get(source.name, [0.5, 0.5]), atol=0.01)
    first, second = (shard.arrays["x"] for shard in source.shards([0, 1], 2, 0))
    assert len(first) == 100
    assert (first != second).all()
    np.testing.assert_array_equal(source.shards([1], 7, 0)[0].arrays["x"], second)


def test_test_rows_are_new_rows_of_the_same_law():
    test = Waveform(test_rows=30_000).test_set(2, 0)
    assert_moments(
        test.x[test.y == 1], (WAVES[0] + WAVES[2]) / 2, np.eye(21) + np.outer(*[WAVES[0] - WAVES[2]] * 2) / 12
    )
    assert not np.isin(test.x[:100], Waveform(rows=200).shards([0], 1, 0)[0].arrays["x"]).any()
    assert Waveform().test_set(2, 0) is None
