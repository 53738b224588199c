"""The command line: what starts without MPI, what is printed, and the exit status."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedlangevin_mpi.cli import main
from fedlangevin_mpi.config import to_yaml


def outcome(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


@pytest.fixture
def config(tmp_path):
    values = {
        "clients": 3,
        "chains": 2,
        "iterations": 300,
        "engine": "interpreted",
        "algorithm": {"name": "fald", "step_size": 0.05, "communication_probability": 0.5},
        "model": {"name": "gaussian"},
        "data": {"name": "synthetic_gaussian", "dim": 2},
        "output": {"directory": str(tmp_path / "run")},
    }
    (tmp_path / "config.yaml").write_text(to_yaml(values))
    return str(tmp_path / "config.yaml")


RING = str(Path(__file__).parents[1] / "topologies" / "ring.yaml")


@pytest.mark.parametrize(
    "command", [["--help"], ["list", "models"], ["schema"], ["topology", "show", RING, "--clients", "5"]]
)
def test_these_start_no_mpi(command):
    program = f"""
import sys
from fedlangevin_mpi.cli import main
try:
    main({command!r})
except SystemExit as e:
    assert e.code == 0
assert "mpi4py.MPI" not in sys.modules
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("algorithms", ["de_sghmc", "de_sgld", "dgd", "extra_sgld", "fald", "fed_avg", "gradient_tracking", "sgld"]),
        ("models", ["custom", "gaussian", "linear_regression", "logistic_regression", "softmax_regression"]),
        ("data", ["breast_cancer", "files", "titanic", "partition dirichlet"]),
        ("topologies", ["ring", "star", "edges", "weights metropolis"]),
    ],
)
def test_list_names_what_a_config_can_name(capsys, kind, names):
    assert outcome("list", kind) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(any(line.startswith(name) and len(line) > 30 for line in lines) for name in names)


def test_the_schema_accepts_the_readmes_keys(capsys):
    assert outcome("schema") == 0
    schema = json.loads(capsys.readouterr().out)
    assert {"seed", "clients", "chains", "algorithm", "model", "data", "output"} <= set(schema["properties"])


def test_a_run_its_summary_and_its_export(config, tmp_path, capsys):
    assert outcome("run", config) == 0
    assert "fald, 3 clients, 1 rank, 2 chains, 300 draws" in capsys.readouterr().out
    assert outcome("summary", str(tmp_path / "run"), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert set(printed) == {
        "algorithm", "clients", "ranks", "chains", "dim", "draws", "iterations", "wall_seconds", "setup_seconds",
        "compile_seconds", "iterations_per_second", "gradient_evaluations", "communication", "parameters", "metrics",
    }  # fmt: skip
    assert printed["parameters"]["name"] == ["x[0]", "x[1]"]
    assert printed["gradient_evaluations"] == 300 * 3 * 2
    assert printed["communication"]["messages"] == 3 * printed["communication"]["rounds"]
    assert outcome("export", str(tmp_path / "run"), str(tmp_path / "run.nc")) == 0
    assert (tmp_path / "run.nc").stat().st_size > 0


def test_a_run_that_gossips_says_how_far_from_consensus_it_was(config, tmp_path, capsys):
    gossip = ["algorithm={name: de_sgld, step_size: 0.05}", f"topology={RING}"]
    assert outcome("run", config, *gossip, "thin=3") == 0
    assert "consensus     clients are" in capsys.readouterr().out
    consensus = json.loads((tmp_path / "run" / "summary.json").read_text())["consensus"]
    assert consensus["iteration"] == list(range(2, 300, 3))
    assert min(consensus["distance"]) > 0


def test_topology_show_tells_the_steps_that_a_config_allows(tmp_path, capsys):
    # One client of precision 4 on a single node: SGLD is stable below 2 / 4, the theorem holds below 1 / (4 + 4).
    np.savez(tmp_path / "client-0.npz", mean=np.zeros(2), covariance=np.eye(2) / 4)
    values = {
        "clients": 1,
        "iterations": 1,
        "algorithm": {"name": "de_sgld", "step_size": 0.1},
        "model": {"name": "gaussian"},
        "data": {"name": "files", "path": str(tmp_path / "client-{client}.npz")},
        "topology": RING,
    }
    (tmp_path / "one.yaml").write_text(to_yaml(values))
    assert outcome("topology", "show", RING, "--config", str(tmp_path / "one.yaml")) == 0
    assert "the theorem holds below 0.125, stable below 0.5" in " ".join(capsys.readouterr().out.split())


def test_topology_check_tells_right_from_wrong(tmp_path, capsys):
    assert outcome("topology", "check", RING, "--clients", "5") == 0
    assert "ring.yaml: correct: ring of 5 clients" in capsys.readouterr().out
    (tmp_path / "wrong.yaml").write_text("kind: rung")
    assert outcome("topology", "check", str(tmp_path / "wrong.yaml"), "--clients", "5") == 2
    assert "did you mean ring?" in capsys.readouterr().err


def test_overrides_and_options_come_in_any_order(config, tmp_path):
    assert outcome("run", config, "chains=1", "--output", str(tmp_path / "other"), "iterations=50") == 0
    text = (tmp_path / "other" / "run.yaml").read_text()
    assert "chains: 1" in text
    assert "iterations: 50" in text


def test_what_is_kept_follows_warmup_and_thin(config, tmp_path):
    from fedlangevin_mpi.store.reader import open_run

    assert outcome("run", config, "warmup=40", "thin=7") == 0
    opened = open_run(tmp_path / "run")
    assert opened.draws == (300 - 40) // 7
    assert opened.iterations.tolist() == [40 + (j + 1) * 7 - 1 for j in range(opened.draws)]


def test_exact_tells_the_law(config, capsys):
    assert outcome("exact", config, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["per_client"]) == 3
    assert max(abs(bias) for bias in report["average"]["mean_bias"]) > 0
    assert outcome("exact", config, "algorithm.communication_probability=1", "--json") == 0
    unbiased = json.loads(capsys.readouterr().out)
    assert max(abs(bias) for bias in unbiased["average"]["mean_bias"]) < 1e-12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["model={name: logistic_regression}", "data={name: breast_cancer}"],
            "model.name: found 'logistic_regression'; allowed: gaussian, linear_regression",
        ),
        (["algorithm={name: fed_avg, step_size: 1}"], "algorithm.name: found 'fed_avg'; allowed: sgld, fald, vr_fald"),
        (["algorithm.step_size=1e3"], "unstable"),
        (["algorithm.step_size={name: polynomial, initial: 0.1}"], "algorithm.step_size: found a decaying schedule"),
        (["clients=null"], "clients: missing"),
    ],
)
def test_exact_says_what_it_cannot_do(config, capsys, arguments, message):
    assert outcome("exact", config, *arguments) in (1, 2)
    assert message in capsys.readouterr().err


def test_a_wrong_command_line_is_status_2(config, tmp_path, capsys):
    assert outcome("sample") == 2
    assert outcome("run", config, "--fast") == 2
    assert outcome("run", config, "--ranks", "0") == 2
    assert outcome("run", config, "--ranks", "9") == 2  # more than clients; said without starting MPI
    assert "clients: found 3 for 9 ranks" in capsys.readouterr().err
    assert outcome("summary", str(tmp_path / "absent")) == 1
    assert outcome("summary", str(tmp_path), "extra") == 2
