"""References by NUTS, against closed forms."""

import subprocess
import sys

import numpy as np
import pytest

from fedlangevin_mpi.cli import main
from fedlangevin_mpi.config import make_config, to_yaml
from fedlangevin_mpi.data.toy_mixture import Mixture, ToyMixture
from fedlangevin_mpi.errors import ConfigError, FedLangevinError
from fedlangevin_mpi.evaluate import exact
from fedlangevin_mpi.evaluate.diagnostics import standard_error
from fedlangevin_mpi.evaluate.recursion import Law
from fedlangevin_mpi.runtime.reference import Length, reference
from fedlangevin_mpi.runtime.resume import read_for_resume
from fedlangevin_mpi.store.reader import open_run
from tests.gaussians import heterogeneous, write_shards, z_scores

pytest.importorskip("nutpie")


def config(**changes):
    values = {
        "seed": 3,
        "clients": 2,
        "iterations": 10,
        "algorithm": {"name": "fald", "step_size": 0.1},
        "model": {"name": "gaussian"},
        "data": {"name": "synthetic_gaussian", "dim": 2},
    }
    return make_config(values | changes)


def draws(made, directory, length=Length(1500, 500, 4)):  # noqa: B008
    return open_run(reference(made, directory, "source", length))


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_gaussian_clients_have_their_exact_posterior(tmp_path, temperature):
    means, precisions = heterogeneous(3, 3)
    algorithm = {"name": "fald", "step_size": 0.1, "temperature": temperature}
    data = {"name": "files", "path": write_shards(tmp_path, means, precisions)}
    run = draws(config(clients=3, data=data, algorithm=algorithm), tmp_path / "run")
    law = exact.posterior(means, precisions)
    z, power = z_scores(run.average()[:], Law(law.mean, temperature * law.covariance))
    assert np.abs(z).max() < 4
    assert power.max() < 0.05
    assert (run.algorithm, run.clients, run.chains, run.draws) == ("nuts", 3, 4, 1500)
    assert not run.particles
    assert run.iterations[[0, -1]].tolist() == [500, 1999]
    assert (tmp_path / "run" / "input.yaml").read_text() == "source"


def test_both_modes_of_a_mixture_are_found(tmp_path):
    prior = [[4.0, 2.0], [2.0, 4.0]]
    model = {"name": "gaussian_mixture", "prior": {"name": "normal", "covariance": prior}}
    run = draws(config(model=model, data={"name": "toy_mixture_2d"}), tmp_path / "run", Length(600, 300, 4))
    factor = Mixture(**ToyMixture(name="toy_mixture_2d").shards([0], 1, 0)[0].arrays)
    weights, means, covariances = factor.times(Mixture(np.ones(1), np.zeros((1, 2)), np.array([prior])))
    mean = weights @ means / weights.sum()
    second = np.einsum("m,mi->i", weights, np.diagonal(covariances, axis1=1, axis2=2) + means**2) / weights.sum()
    series = run.average()[:]
    for moment, value in ((series, mean), (series**2, second)):
        error = standard_error(moment.mean(1))
        assert (np.abs(moment.mean((0, 1)) - value) < 4 * error).all()
        assert error.max() < 0.1


def test_the_same_seed_gives_the_same_draws_and_no_client_draws(tmp_path):
    short = Length(50, 100, 2)
    one, same = (draws(config(), tmp_path / name, short).average()[:] for name in ("one", "same"))
    np.testing.assert_array_equal(one, same)
    other = draws(config(seed=4), tmp_path / "other", short)
    assert (other.average()[:] != one).any()
    assert (one[:, 0] != one[:, 1]).any()
    with pytest.raises(ConfigError, match="client 0 has no draws"):
        other.position(0)


def test_it_is_a_run_to_every_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = {"name": "titanic", "partition": {"name": "iid"}}
    made = config(model={"name": "logistic_regression"}, data=data).model_dump()
    (tmp_path / "config.yaml").write_text(to_yaml(made))
    command = ["reference", "config.yaml", "clients=3", "--output", "ref", "--draws", "50", "--tune", "100"]
    script = (
        "import sys; from fedlangevin_mpi.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as e: assert not e.code\n"
        "assert 'mpi4py.MPI' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "nuts, 3 clients, 1 rank, 4 chains, 50 draws" in done.stdout
    assert "accuracy " in done.stdout
    for arguments in (["summary", "ref", "--reference", "ref", "--stein"], ["export", "ref", "ref.nc"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert not left.value.code
    with pytest.raises(SystemExit) as left:
        main(command)
    assert left.value.code == 2  # a run is never overwritten


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fald", "step_size": 0.1},
        {"name": "svgd", "step_size": 0.1, "particles": 7, "global_iterations": 2},  # has lengths of its own
    ],
)
def test_its_folder_is_no_run_that_could_go_on(tmp_path, algorithm):
    values = {"iterations": 5} if algorithm["name"] == "fald" else {}
    values |= {"seed": 3, "clients": 1, "algorithm": algorithm}
    values |= {"model": {"name": "gaussian"}, "data": {"name": "synthetic_gaussian", "dim": 2}}
    run = draws(make_config(values), tmp_path / "run", Length(20, 50, 2))
    assert make_config(run.config).algorithm.name == algorithm["name"]
    assert (run.chains, run.resolved.chains, run.draws) == (2, 2, 20)
    with pytest.raises(ConfigError, match=r"run holds draws by nuts; allowed in a resume: those of `fedlangevin run`"):
        read_for_resume(tmp_path / "run")


def of_module(tmp_path, monkeypatch, name, body):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"{name}.py").write_text(f"import numpy as np\nfrom fedlangevin_mpi import CustomModel\n{body}")
    return config(model={"name": "custom", "factory": f"{name}:make"}, data={"name": "synthetic_linear"})


def test_a_model_without_a_potential_is_refused(tmp_path, monkeypatch):
    body = "def make(): return CustomModel(dim=2, gradient=lambda theta, x, y: theta)"
    made = of_module(tmp_path, monkeypatch, "no_potential", body)
    with pytest.raises(ConfigError, match="gives gradients only; log_likelihood"):
        draws(made, tmp_path / "run", Length(10, 10, 1))
    assert not (tmp_path / "run").exists()


def test_a_density_that_is_never_finite_is_an_error_of_ours(tmp_path, monkeypatch):
    body = (
        "def make(): return CustomModel(dim=2, gradient=lambda theta, x, y: theta * np.nan,\n"
        "    log_likelihood=lambda theta, x, y: np.nan)"
    )
    made = of_module(tmp_path, monkeypatch, "never_finite", body)
    with pytest.raises(FedLangevinError, match="reference: nutpie failed: All initialization points failed"):
        draws(made, tmp_path / "run", Length(10, 10, 1))
    assert not (tmp_path / "run").exists()


def test_without_nutpie_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nutpie", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedlangevin_mpi\[reference\]'"):
        draws(config(), tmp_path / "run")
