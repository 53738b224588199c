from __future__ import annotations

import numpy as np
import pytest

from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.errors import DivergedError
from fedlangevin_mpi.report import trust
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run

PARTS = {"path": "two.yaml", "kind": "edges", "lambda_2": 1.0, "lambda_n": 0.0, "fingerprint": ""}


def verdicts(folder) -> dict[str, str]:
    run = open_run(folder)
    return {check.name: check.verdict for check in trust.checks(run, run.summary())}


@pytest.mark.parametrize(("shift", "verdict"), [(0.0, "good"), (0.5, "doubtful")])
def test_chains_that_disagree_are_doubtful(make_run, shift, verdict):
    draws = np.random.default_rng(1).normal(size=(2000, 1, 2, 1)) + shift * np.array([0, 1])[:, None]
    assert verdicts(make_run(draws))["R-hat"] == verdict


def test_a_slow_chain_is_doubtful(make_run):
    steps = np.random.default_rng(1).normal(size=(2000, 1, 2, 1))
    assert verdicts(make_run(steps, name="quick"))["effective draws"] == "good"
    assert verdicts(make_run(np.cumsum(steps, 0), name="slow"))["effective draws"] == "doubtful"


def test_one_chain_tells_nothing_of_agreement(make_run):
    assert verdicts(make_run(np.random.default_rng(1).normal(size=(500, 1, 1, 1))))["R-hat"] == "unknown"


def test_a_graph_that_falls_apart_and_clients_that_drift_are_doubtful(make_run):
    draws = np.random.default_rng(1).normal(size=(500, 2, 2, 1))
    draws[:, 0] += np.linspace(0, 20, 500)[:, None, None]
    found = verdicts(make_run(draws, topologies=[PARTS | {"components": [[0], [1]]}]))
    assert (found["network"], found["consensus"]) == ("doubtful", "doubtful")


@pytest.mark.parametrize(("shift", "verdict"), [(0.01, "good"), (0.2, "doubtful")])
def test_particles_that_still_move_are_doubtful(make_run, shift, verdict):
    last = np.random.default_rng(1).normal(size=(40, 3))
    draws = np.stack([last, last + shift])[:, None]
    assert verdicts(make_run(draws, [[-1]], about={"coins": "none"})) == {"end": "good", "settled": verdict}


def test_a_run_that_diverged_says_so(tmp_path):
    wanted = {"iterations": 200, "clients": 2, "engine": "interpreted", "output": {"directory": str(tmp_path / "run")}}
    wanted |= {"algorithm": {"name": "fald", "step_size": 1e6}, "model": {"name": "gaussian"}}
    with pytest.raises(DivergedError):
        run(make_config(wanted | {"data": {"name": "synthetic_gaussian", "dim": 1}}))
    assert verdicts(tmp_path / "run")["end"] == "doubtful"
    assert any("stopped being finite" in note for note in trust.notes(tmp_path / "run"))


def test_warnings_of_the_log_are_notes(tmp_path):
    assert trust.notes(tmp_path) == []
    (tmp_path / "log").mkdir()
    lines = ["2026-01-01 00:00:00,000 INFO fine", *["2026-01-01 00:00:00,000 WARNING step: too large"] * 2, "  more"]
    (tmp_path / "log" / "rank-00000.log").write_text("\n".join(lines))
    assert trust.notes(tmp_path) == ["step: too large"]
