"""The predictive that a run averages as it goes is that of its draws, whether they are stored or not."""

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.cli import main
from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.errors import ConfigError, StoppedError, StoreError
from fedlangevin_mpi.evaluate.comparison import compare
from fedlangevin_mpi.evaluate.held_out import predictive_of, summary_of
from fedlangevin_mpi.evaluate.predictive import agreement, total_variation
from fedlangevin_mpi.evaluate.summary import posterior_draws
from fedlangevin_mpi.report import contents, watch
from fedlangevin_mpi.runtime import blocks
from fedlangevin_mpi.runtime.pace import Pace
from fedlangevin_mpi.runtime.resume import resume
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.export import export, to_arviz
from fedlangevin_mpi.store.reader import open_run
from tests.predictives import KINDS, config
from tests.resuming import ALGORITHMS


def sample(folder, kind, store, **more):
    return open_run(run(config(folder, kind, store, **more), comm=MPI.COMM_SELF))


def same(a, b, tolerance=0.0):
    """Assert that two averaged predictives are equal."""
    assert (a.positions, a.iteration) == (b.positions, b.iteration)
    for one, other in ((a.probabilities, b.probabilities), (a.smoothed, b.smoothed), (a.mixture, b.mixture)):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def fedlangevin(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_predictive_of_the_stored_draws(tmp_path, kind):
    found = sample(tmp_path / "run", kind, "both")
    streamed, predictive = found.predictive(), predictive_of(found)
    positions = posterior_draws(found)[:].reshape(-1, found.dim)
    assert streamed.positions == len(positions) >= 4
    predicted = np.asarray(predictive.predict(positions, predictive.x), dtype=float)
    if predictive.noise_scale is None:
        np.testing.assert_allclose(streamed.probabilities, predicted.mean(0), rtol=0, atol=1e-7)
        assert predicted.mean(0).std() > 0.01
        assert (streamed.smoothed is not None) == (kind == "particles")
    else:
        noise = predictive.noise_scale(positions).astype(float)
        np.testing.assert_allclose(streamed.mixture.mean, predicted.mean(0), rtol=1e-6)
        np.testing.assert_allclose(streamed.mixture.variance, predicted.var(0) + (noise**2).mean(), rtol=1e-6)
        assert predicted.var(0).min() > 1e-4
    summary = summary_of(found)
    assert summary["averaged_draws"] == len(positions) // found.chains
    draws_alone = sample(tmp_path / "draws", kind, "draws")  # whose metrics are of the draws
    assert draws_alone.predictive() is None
    expected = summary_of(draws_alone)["metrics"]
    assert expected.keys() == summary["metrics"].keys()
    assert summary["metrics"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_without_draws_it_is_the_same_to_the_bit_and_so_after_a_resume(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(blocks, "block_length", lambda *_: 16)
    whole = sample(tmp_path / "both", kind, "both")
    folder = tmp_path / "stopped"
    calls = []

    def took(self, *_):
        calls.append(0)
        self._length = 8
        if len(calls) in (2, 5):
            self._request.number = 10

    monkeypatch.setattr(Pace, "took", took)
    for action in (lambda: run(config(folder, kind, "predictive"), comm=MPI.COMM_SELF), lambda: resume(folder)):
        with pytest.raises(StoppedError):
            action()
    resume(folder, comm=MPI.COMM_SELF)
    stopped = open_run(folder)
    assert len(stopped.resolved.launches) == 3
    same(stopped.predictive(), whole.predictive())
    assert (stopped.draws, stopped.kept) == (0, whole.kept)
    np.testing.assert_array_equal(stopped.iterations, whole.iterations)


@pytest.fixture
def without_draws(tmp_path):
    return sample(tmp_path / "run", "gossip", "predictive")


def test_a_run_without_draws_says_what_it_has(without_draws, capsys):
    directory = without_draws.directory
    assert "10 draws averaged, 5 clients" in repr(without_draws)
    assert without_draws.average().shape == (0, 2, 12)
    fedlangevin("summary", directory)
    shown = capsys.readouterr().out
    assert "averaged over 10 draws as they were made" in shown
    assert "no table of parameters" in shown
    assert "accuracy" in shown
    summary = summary_of(without_draws)
    assert summary["draws"] == 0
    assert summary["averaged_draws"] == 10
    assert set(summary["parameters"]["mean"]) == {None}
    assert summary_of(without_draws, client=2)["metrics"] == {}  # it is of the average alone
    fedlangevin("report", directory)
    page = (directory / "report.html").read_text()
    assert "10 draws, averaged over and not stored," in page
    assert "Reliability of the posterior predictive" in page
    seen = watch.look(directory)
    assert (seen.iteration, len(seen.clients), seen.names) == (57, 5, [])
    fedlangevin("watch", "--once", directory)
    assert "iteration 57 of 60, ended" in capsys.readouterr().out
    np.testing.assert_array_equal(
        contents.answers(without_draws).probabilities, without_draws.predictive().probabilities
    )


def test_what_needs_draws_says_why_there_are_none(without_draws, tmp_path):
    why = "has no draws: output.store is predictive, so positions were averaged over and not kept"
    for needing in (export, lambda found, _: to_arviz(found), lambda found, _: found.natural_parameters()):
        with pytest.raises(StoreError, match=why):
            needing(without_draws, tmp_path / "draws.nc")
    with pytest.raises(StoreError, match=why):
        without_draws.plot_trace()
    assert not (tmp_path / "draws.nc").exists()


def test_predictives_alone_can_be_compared(without_draws, tmp_path):
    reference = sample(tmp_path / "reference", "gossip", "draws", algorithm={"name": "de_sgld", "step_size": 5e-3})
    found = compare(without_draws, reference)
    p, q = (contents.answers(one).probabilities for one in (without_draws, reference))
    assert found["agreement"] == agreement(p, q)
    assert found["total_variation"] == total_variation(p, q) > 0.01
    assert found["w2"] is None
    assert compare(reference, without_draws)["total_variation"] == found["total_variation"]


def test_what_cannot_be_predicted_is_refused_before_anything_is_written(tmp_path):
    gaussian = {"model": {"name": "gaussian"}, "data": {"name": "synthetic_gaussian", "dim": 3}}
    with pytest.raises(ConfigError, match="output.store: found 'both'; allowed: draws, since data synthetic_gaussian"):
        sample(tmp_path / "run", "average", "both", **gaussian)
    lines = (
        "import fedlangevin_mpi",
        "def make(): return fedlangevin_mpi.CustomModel(dim=4, gradient=lambda t, x, y: t)",
    )
    (tmp_path / "silent_model.py").write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        with pytest.raises(ConfigError, match="since model custom predicts nothing"):
            sample(tmp_path / "run", "average", "predictive", model={"name": "custom", "factory": "silent_model:make"})
    assert not (tmp_path / "run").exists()


def test_a_damaged_checkpoint_leaves_the_one_before(without_draws):
    resume(without_draws.directory, ["iterations=70"], comm=MPI.COMM_SELF)
    last = open_run(without_draws.directory)
    assert (last.predictive().iteration, last.predictive().positions) == (70, 24)
    (part,) = last.directory.glob("checkpoint/000002/predictive-*.npz")
    part.write_bytes(part.read_bytes()[:-1])
    same(last.predictive(), without_draws.predictive())
    for manifest in last.directory.glob("checkpoint/*/manifest.json"):
        manifest.write_text("{")
    with pytest.raises(StoreError, match=r"000002.manifest.json: cannot be read"):
        last.predictive()


def test_every_sampler_in_blocks_can(tmp_path):
    """A state of their own, an exchange or none: it is outside of what averages the draws."""
    for name, kind in ALGORITHMS.items():
        more = {"algorithm": {"name": name, "step_size": 1e-3}, "clients": 1 if kind.communicates == "never" else 5}
        if "communication_probability" in kind.model_fields:
            more["algorithm"]["communication_probability"] = 0.5
        values = config(tmp_path / name, "gossip", "predictive").model_dump() | more
        if kind.communicates != "gossip":
            values["topology"] = None
        found = open_run(run(make_config(values), comm=MPI.COMM_SELF))
        assert found.predictive().positions == 20, name
