"""Normals in single precision: their law, and that nothing is left unfilled."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from fedlangevin_mpi.keys import Purpose, generator
from fedlangevin_mpi.runtime.normals import standard_normals

SINGLE = np.dtype(np.float32)


def test_double_precision_is_numpy_s():
    drawn = standard_normals(generator(1, Purpose.NOISE), (3, 5), np.dtype(np.float64))
    np.testing.assert_array_equal(drawn, generator(1, Purpose.NOISE).standard_normal((3, 5)))


def test_single_precision_has_the_normal_law():
    z = standard_normals(generator(2, Purpose.NOISE), (2_000_000,), SINGLE).astype(np.float64)
    assert stats.kstest(z, "norm").pvalue > 0.01
    assert stats.chisquare(np.histogram(stats.norm.cdf(z), 500, (0, 1))[0]).pvalue > 0.01
    for power, mean in ((1, 0), (2, 1), (3, 0), (4, 3)):
        values = z**power
        assert abs(values.mean() - mean) < 4 * values.std() / np.sqrt(len(z))


def test_the_tails_are_there():
    z = standard_normals(generator(3, Purpose.NOISE), (4_000_000,), SINGLE)
    for threshold in (3, 4, 4.5):
        for tail in (z > threshold, z < -threshold):
            expected = stats.norm.sf(threshold) * len(z)
            assert abs(tail.sum() - expected) < 4 * np.sqrt(expected)


@pytest.mark.parametrize("bits", [0, 2**64 - 1])
def test_any_bits_make_finite_numbers(bits):
    always = SimpleNamespace(random_raw=lambda count: np.full(count, bits, np.uint64))
    drawn = standard_normals(SimpleNamespace(bit_generator=always), (6,), SINGLE)
    assert np.isfinite(drawn).all()


def test_the_two_of_a_pair_are_independent():
    pairs = standard_normals(generator(4, Purpose.NOISE), (2, 8192), SINGLE).astype(np.float64)
    for function in (np.asarray, np.square, np.abs):
        assert abs(stats.pearsonr(*function(pairs)).statistic) < 4 / np.sqrt(pairs.shape[1])


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 1, 7), (2, 1, 8192), (1, 3, 8193)])
def test_every_number_is_drawn_once(shape):
    drawn = standard_normals(generator(5, Purpose.NOISE), shape, SINGLE)
    assert (drawn.shape, drawn.dtype) == (shape, SINGLE)
    assert len(np.unique(np.abs(drawn))) >= drawn.size * 0.99
    assert np.all(np.isfinite(drawn))
