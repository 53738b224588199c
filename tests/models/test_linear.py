import numpy as np
import pytest
from pydantic import ValidationError

from fedlangevin_mpi.generic import Everything, gradient
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.models.linear import LinearRegression

MODEL = LinearRegression(noise_scale=0.5, prior_scale=2.0)


def posterior(shards) -> tuple[np.ndarray, np.ndarray]:
    x, y = (np.concatenate([s.arrays[name] for s in shards]) for name in ("x", "y"))
    precision = x.T @ x / 0.5**2 + np.eye(x.shape[1]) / 2.0**2
    return np.linalg.solve(precision, x.T @ y / 0.5**2), precision


def test_gradient_is_that_of_the_closed_form_posterior(row_shards):
    shards = row_shards([6, 3, 8])
    mean, precision = posterior(shards)
    data = MODEL.pack(shards, [1 / 3] * 3, Facts(3), np.float64)
    points = mean + np.vstack([np.zeros(3), np.eye(3)])
    theta = np.broadcast_to(points, (3, 4, 3)).copy()
    slopes = gradient(theta, data, Everything(3), 0).sum(0)
    np.testing.assert_allclose(slopes, np.vstack([np.zeros(3), precision]), atol=1e-12 * abs(precision).max())


def test_shards_are_left_as_they_were(row_shards):
    shards = row_shards([4])
    before = shards[0].arrays["x"].copy()
    MODEL.pack(shards, [1.0], Facts(3), np.float64)
    np.testing.assert_array_equal(shards[0].arrays["x"], before)


def test_predicts_means():
    found = MODEL.predict(np.array([[1.0, 2.0], [0.0, -1.0]]), np.array([[3.0, 4.0]]), Facts(2))
    np.testing.assert_array_equal(found, [[11.0], [-4.0]])


def test_prior_draws_have_the_standard_deviation_of_the_prior():
    draws = MODEL.prior_draws(np.random.default_rng(0), 20_000, 3)
    assert draws.shape == (20_000, 3)
    assert draws.std() == pytest.approx(2.0, rel=0.02)


def test_infinite_scale_is_a_flat_prior(row_shards):
    flat = LinearRegression.model_validate_json('{"prior_scale": Infinity}', strict=True)
    assert flat.prior_draws(np.random.default_rng(0), 2, 3) is None
    assert not flat.pack(row_shards([4]), [1.0], Facts(3), np.float64).prior_precision.any()


@pytest.mark.parametrize(("key", "value"), [("noise_scale", 0), ("noise_scale", np.inf), ("prior_scale", np.nan)])
def test_scales_outside_their_range_are_refused(key, value):
    with pytest.raises(ValidationError, match=key):
        LinearRegression(**{key: value})
