"""Stationary moments of the samplers on Gaussian clients against the exact laws, in both engines.

Compiled runs share their coins among chains, interpreted ones have coins for every chain: both ways are covered.
"""

import numpy as np
import pytest

from fedlangevin_mpi.evaluate import exact
from tests.gaussians import heterogeneous
from tests.laws import ENGINES, STEP, assert_law, biases, sample


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("probability", [1.0, 0.2])
@pytest.mark.parametrize("dim", [2, 3])
def test_fald(tmp_path, engine, tau, probability, dim):
    means, precisions = heterogeneous(3, dim)
    algorithm = {"name": "fald", "communication_probability": probability, "noise_correlation": tau}
    opened = sample(tmp_path, means, precisions, engine, algorithm)
    law = exact.fald(means, precisions, STEP, communication_probability=probability, noise_correlation=tau)
    assert_law(opened, law, 3)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("probability", [1.0, 0.2])
@pytest.mark.parametrize("dim", [2, 3])
def test_vr_fald(tmp_path, engine, tau, probability, dim):
    means, precisions = heterogeneous(3, dim)
    algorithm = {
        "name": "vr_fald",
        "communication_probability": probability,
        "reference_probability": 0.15,
        "noise_correlation": tau,
    }
    opened = sample(tmp_path, means, precisions, engine, algorithm)
    law = exact.vr_fald(
        means,
        precisions,
        STEP,
        communication_probability=probability,
        reference_probability=0.15,
        noise_correlation=tau,
    )
    assert_law(opened, law, 3)


def test_client_drift_biases_fald_and_not_vr_fald(tmp_path):
    means, precisions = heterogeneous(3, 2, spread=3.0)
    target = exact.posterior(means, precisions)
    clock = {"communication_probability": 0.2}
    drifting = sample(tmp_path / "fald", means, precisions, "compiled", {"name": "fald"} | clock)
    corrected = sample(tmp_path / "vr", means, precisions, "compiled", {"name": "vr_fald"} | clock)
    assert biases(drifting, target).max() > 10
    assert biases(corrected, target).max() < 4


def test_partial_participation(tmp_path):
    means, precisions = heterogeneous(4, 2)
    options = {"communication_probability": 0.5, "noise_correlation": 0.3, "participants": 2}
    opened = sample(tmp_path, means, precisions, "compiled", {"name": "fald"} | options)
    assert_law(opened, exact.fald(means, precisions, STEP, **options), 4)


def test_a_fixed_interval(tmp_path):
    means, precisions = heterogeneous(3, 2)
    opened = sample(tmp_path, means, precisions, "compiled", {"name": "fald", "communication_interval": 4})
    assert_law(opened, exact.fald(means, precisions, STEP, communication_interval=4), 3)


def test_temperature(tmp_path):
    means, precisions = heterogeneous(3, 2)
    options = {"communication_probability": 0.5, "temperature": 0.25}
    opened = sample(tmp_path, means, precisions, "compiled", {"name": "fald"} | options)
    assert_law(opened, exact.fald(means, precisions, STEP, **options), 3)


def test_sgld_is_the_unadjusted_langevin_algorithm(tmp_path):
    means, precisions = heterogeneous(1, 3)
    opened = sample(tmp_path, means, precisions, "compiled", {"name": "sgld"})
    assert_law(opened, exact.sgld(means, precisions, STEP), 1)


def test_one_client_makes_fald_sgld_and_vr_fald_svrg_langevin_dynamics(tmp_path):
    means, precisions = heterogeneous(1, 3)
    short = {"iterations": 1000, "warmup": 0, "thin": 1}
    names = ("sgld", "fald", "vr_fald")
    paths = [
        sample(tmp_path / name, means, precisions, "compiled", {"name": name}, **short).average()[:] for name in names
    ]
    np.testing.assert_allclose(paths[1], paths[0], rtol=0, atol=1e-12 * np.abs(paths[0]).max())
    np.testing.assert_allclose(paths[2], paths[0], rtol=0, atol=1e-12 * np.abs(paths[0]).max())


def test_fed_avg_without_drift_finds_the_mode(tmp_path):
    means, precisions = heterogeneous(3, 2)
    opened = sample(tmp_path, means, precisions, "compiled", {"name": "fed_avg"}, iterations=2000)
    mode = np.broadcast_to(exact.posterior(means, precisions).mean, opened.average()[-1].shape)
    np.testing.assert_allclose(opened.average()[-1], mode, rtol=1e-12)


def test_a_decaying_step_size_is_used(tmp_path):
    means, precisions = heterogeneous(1, 2)
    schedule = {"step_size": {"name": "polynomial", "initial": 0.2, "offset": 10.0, "power": 0.6}}
    short = {"iterations": 200, "warmup": 0, "thin": 1, "chains": 1, "initial": {"name": "zeros"}}
    opened = sample(tmp_path, means, precisions, "interpreted", {"name": "fed_avg"} | schedule, **short)
    x, path = np.zeros(2), []
    for k in range(200):
        x = x - 0.2 * (1 + k / 10) ** -0.6 * precisions[0] @ (x - means[0])
        path.append(x)
    np.testing.assert_allclose(opened.average()[:, 0], path, rtol=1e-12)
