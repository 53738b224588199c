"""Diagnostics on series whose effective sample sizes are known."""

import time
import warnings

import numpy as np
import pytest
from scipy.signal import lfilter

from fedlangevin_mpi.evaluate.diagnostics import ess_bulk, ess_tail, hdi, mcse_mean, r_hat, standard_error

RHO = 0.8
FACTOR = (1 - RHO) / (1 + RHO)  # effective draws of an autoregression, a draw


def autoregressions(chains, draws, parameters, seed=1):
    """Stationary AR(1) chains of unit variance, `(chain, draw, parameter)`, independent of one another."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(chains, draws + 200, parameters)) * np.sqrt(1 - RHO**2)
    return lfilter([1.0], [1.0, -RHO], noise, axis=1)[:, 200:]


def with_common_part(share, chains=8, draws=4000, parameters=20):
    common = autoregressions(1, draws, parameters, seed=2)
    return np.sqrt(share) * common + np.sqrt(1 - share) * autoregressions(chains, draws, parameters)


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_independent_chains_have_the_known_effective_size():
    draws = autoregressions(4, 4000, 20)
    assert ess_bulk(draws).mean() == pytest.approx(16_000 * FACTOR, rel=0.05)
    np.testing.assert_allclose(r_hat(draws), 1, atol=0.02)
    assert (mcse_mean(draws) ** -2).mean() == pytest.approx(16_000 * FACTOR, rel=0.05)


def test_the_values_are_those_of_arviz():
    arviz = pytest.importorskip("arviz")
    draws = autoregressions(3, 101, 2) ** 3
    for parameter in range(2):
        one = draws[..., parameter]
        assert r_hat(draws)[parameter] == pytest.approx(float(arviz.rhat(one)))
        assert ess_bulk(draws)[parameter] == pytest.approx(float(arviz.ess(one, method="bulk")))
        assert ess_tail(draws)[parameter] == pytest.approx(float(arviz.ess(one, method="tail", prob=(0.05, 0.95))))
        assert mcse_mean(draws)[parameter] == pytest.approx(np.asarray(arviz.mcse(one, method="mean")).item())


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_chains_with_a_common_part_count_for_less(share):
    chains, draws = 8, 4000
    series = with_common_part(share, chains, draws)
    overstated = 1 + (chains - 1) * share  # Var(mean over chains) is this much above 1 / chains
    honest = chains * draws * FACTOR / overstated
    assert ess_bulk(series, coins_shared=True).mean() == pytest.approx(honest, rel=0.08)
    assert (mcse_mean(series, coins_shared=True) ** -2).mean() == pytest.approx(honest, rel=0.08)
    assert ess_bulk(series).mean() == pytest.approx(chains * draws * FACTOR, rel=0.08)  # blind to the common part
    error = standard_error(series.mean(axis=0))
    assert (error**2).mean() == pytest.approx(1 / honest, rel=0.25)


def test_tail_of_equal_chains_counts_as_one_chain():
    one = autoregressions(1, 4000, 10)
    equal = np.repeat(one, 5, axis=0)
    np.testing.assert_allclose(ess_tail(equal, coins_shared=True), ess_tail(one), rtol=0.01)
    np.testing.assert_allclose(ess_bulk(equal, coins_shared=True), ess_bulk(one), rtol=0.01)
    np.testing.assert_allclose(mcse_mean(equal, coins_shared=True), mcse_mean(one), rtol=0.01)
    assert ess_tail(equal).mean() > 4 * ess_tail(one).mean()


def test_chains_that_disagree_are_not_excused_by_shared_coins():
    stuck = autoregressions(4, 500, 3) + 10 * np.arange(4)[:, None, None]
    np.testing.assert_array_equal(ess_bulk(stuck, coins_shared=True), ess_bulk(stuck))
    np.testing.assert_array_equal(mcse_mean(stuck, coins_shared=True), mcse_mean(stuck))
    assert ess_bulk(stuck).max() < 10
    assert r_hat(stuck).min() > 1.5


def test_chains_that_never_move_are_far_apart():
    assert r_hat(np.repeat([[0.0], [1.0]], 128, axis=1)) > 1e6  # no variance within: infinite, up to rounding


def test_one_chain_has_no_r_hat_and_shares_its_coins_with_none():
    draws = autoregressions(1, 400, 2)
    assert np.isnan(r_hat(draws)).all()
    np.testing.assert_allclose(ess_bulk(draws, coins_shared=True), ess_bulk(draws))
    np.testing.assert_allclose(ess_tail(draws, coins_shared=True), ess_tail(draws))


def test_interval_is_the_narrowest():
    uniform = np.random.default_rng(0).exponential(size=(4, 25_000, 1))
    np.testing.assert_allclose(hdi(uniform, 0.9), [[0, np.log(10)]], atol=0.05)
    assert hdi(np.arange(101.0)[None], 0.5).tolist() == [0, 50]


@pytest.mark.parametrize("shape", [(4, 0, 3), (1, 1, 3), (4, 2, 3), (1, 3, 3), (2, 3)])
def test_too_few_draws_give_nan(shape):
    draws = np.random.default_rng(0).normal(size=shape)
    for diagnostic in (r_hat, ess_bulk, ess_tail, mcse_mean):
        for value in (diagnostic(draws), diagnostic(np.ones(shape))):
            assert value.shape == shape[2:]
            assert np.isnan(value).all()
    assert hdi(draws).shape == (*shape[2:], 2)


def test_constant_and_broken_parameters_leave_the_others_alone():
    draws = autoregressions(4, 100, 4)
    alone = draws[..., 3:].copy()
    draws[..., 0] = 7.0
    draws[2, 5, 1] = np.nan
    draws[2, 5, 2] = np.inf
    for shared in (False, True):
        np.testing.assert_array_equal(ess_bulk(draws, shared), [400, np.nan, np.nan, ess_bulk(alone, shared)[0]])
        np.testing.assert_array_equal(ess_tail(draws, shared), [400, np.nan, np.nan, ess_tail(alone, shared)[0]])
        np.testing.assert_array_equal(mcse_mean(draws, shared), [0, np.nan, np.nan, mcse_mean(alone, shared)[0]])
    np.testing.assert_array_equal(r_hat(draws), [np.nan, np.nan, np.nan, r_hat(alone)[0]])
    np.testing.assert_array_equal(hdi(draws)[:3], [[7, 7], [np.nan, np.nan], [np.nan, np.nan]])


def test_parameters_keep_their_shape_and_place():
    draws = autoregressions(2, 50, 6).reshape(2, 50, 2, 3)
    assert ess_bulk(draws).shape == (2, 3)
    assert hdi(draws).shape == (2, 3, 2)
    assert ess_bulk(draws)[1, 2] == ess_bulk(draws[..., 1, 2])


def test_blocks_of_parameters_do_not_matter(monkeypatch):
    draws = autoregressions(2, 50, 7)
    expected = ess_bulk(draws, coins_shared=True)
    monkeypatch.setattr("fedlangevin_mpi.evaluate.diagnostics._BLOCK", 300)  # three parameters at a time
    np.testing.assert_array_equal(ess_bulk(draws, coins_shared=True), expected)


def test_many_parameters_without_information_are_quick():
    start = time.monotonic()
    for draws in (np.ones((2, 20, 60_000)), np.random.default_rng(0).normal(size=(2, 2, 60_000))):
        for diagnostic in (r_hat, ess_bulk, ess_tail, mcse_mean, hdi):
            diagnostic(draws)
    assert time.monotonic() - start < 20  # a millisecond a parameter would take minutes


def test_batch_means_of_independent_draws():
    rng = np.random.default_rng(4)
    series = rng.normal(size=(1003, 400)) * 2
    error = standard_error(series, batches=20)
    assert (error**2).mean() == pytest.approx(4 / 1000, rel=0.03)
    batches = series[3:].reshape(20, 50, 400).mean(1)  # the first draws, perhaps not yet stationary, are left out
    np.testing.assert_allclose(error, batches.std(0, ddof=1) / np.sqrt(20))


@pytest.mark.parametrize("batches", [0, 1, 11])
def test_batches_that_cannot_be_filled_are_refused(batches):
    with pytest.raises(ValueError, match=f"{batches} batches of 10 draws; allowed: 2 to"):
        standard_error(np.zeros(10), batches)
