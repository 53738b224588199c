"""The papers' experiments with networks: launch/papers, tiny."""

from pathlib import Path

import numpy as np
import pytest

from fedlangevin_mpi.config import read_config
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run

PAPERS = Path(__file__).parents[1] / "launch" / "papers"

pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(PAPERS)


def made(config, directory, *overrides):
    return open_run(run(read_config(PAPERS / config, [*overrides, f"output.directory={directory}"])[0]))


@pytest.mark.parametrize("table", ["fald-table3.yaml", "fald-table4.yaml"])
def test_samplers_of_fald_tables_are_counterparts_at_one_budget(table):
    from fald_networks import samplers
    from runs import with_overrides

    config = read_config(PAPERS / table)[0]
    rows = 50 * config.clients * config.algorithm.batch_size
    together = config.clients * config.algorithm.batch_size
    found = {name: with_overrides(PAPERS / table, own) for name, own in samplers(config, rows).items()}
    costs = {"VR-FALD*": 2 * together + found["VR-FALD*"].algorithm.reference_probability * rows}
    for name, one in found.items():
        computed = one.chains * one.iterations * costs.get(name, together)
        assert computed == pytest.approx(config.iterations * together, rel=0.02), name
        if name == "deep ensembles":
            assert one.draws == 1  # where every member ends
            continue
        assert one.warmup / one.iterations == pytest.approx(config.warmup / config.iterations, rel=0.01)
    sgld, fed_avg = found["SGLD"].algorithm, found["FedAvg"]
    assert sgld.batch_size == together
    assert sgld.step_size == pytest.approx(config.algorithm.step_size / config.clients)  # as their average moves
    assert sgld.temperature == found["VR-FALD*"].algorithm.temperature == config.algorithm.temperature
    assert fed_avg.draws == 1
    assert fed_avg.algorithm.communication_probability == config.algorithm.communication_probability


def test_step_and_temperature_of_table_3_are_those_of_its_rows():
    from fald_table3 import scaled

    algorithm = read_config(PAPERS / "fald-table3.yaml")[0].algorithm
    assert scaled(4000) == pytest.approx(
        {"algorithm.step_size": algorithm.step_size, "algorithm.temperature": algorithm.temperature}
    )
    assert scaled(60_000)["algorithm.temperature"] == 1


def test_what_chance_gives_is_the_ece_of_a_predictor_that_is_right():
    from fald_table3 import Outcome, by_chance, pooled_ece

    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), 20_000)
    right = (probabilities.cumsum(1) < rng.random((20_000, 1))).sum(1)
    outcomes = [Outcome([], probabilities, right)]
    chance = by_chance(outcomes)
    assert abs(pooled_ece(outcomes) - np.mean(chance)) < 4 * np.std(chance)
    assert pooled_ece([Outcome([], probabilities, 2 - right)]) > np.mean(chance) + 20 * np.std(chance)


@pytest.mark.parametrize(
    ("name", "more", "expected"), [("fald", [], 3 * 400), ("vr_fald", ["1.0"], 6 * 400 + 4 * 1437)]
)
def test_gradient_rows_count_minibatches_and_full_passes(tmp_path, name, more, expected):
    from fald_networks import gradient_rows
    from runs import training_rows

    small = ["data.name=digits", "model={name: softmax_regression}", "initial={name: zeros}", "engine=interpreted"]
    lengths = ["iterations=3", "warmup=0", "thin=1", "algorithm.batch_size=20"]
    renewed = [f"algorithm.reference_probability={q}" for q in more]
    opened = made("fald-table3.yaml", tmp_path / "run", *small, *lengths, f"algorithm.name={name}", *renewed)
    rows = training_rows(read_config(PAPERS / "fald-table3.yaml", small)[0])
    assert rows == 1437
    assert gradient_rows(opened, rows) == expected


def test_table_4_reads_cifar_10_and_compares_with_a_reference(tmp_path, capsys):
    from fald_table4 import row, show

    records = np.random.default_rng(0).integers(0, 256, (60, 3073), np.uint8)
    records[:, 0] = np.arange(60) % 10
    records[:40].tofile(tmp_path / "data_batch_1.bin")
    records[40:].tofile(tmp_path / "test_batch.bin")
    lengths = ["iterations=2", "warmup=0", "thin=1", "algorithm.batch_size=1", f"data.path={tmp_path}"]
    lengths += ["model.module=mlp", "model.options={hidden: [2]}"]  # ResNet-20 has 270,000 parameters to summarise
    fald = made("fald-table4.yaml", tmp_path / "fald", *lengths)
    other = made("fald-table4.yaml", tmp_path / "other", *lengths, "seed=2")
    assert row(fald, fald)[1:3] == pytest.approx((100, 0), abs=1e-5)
    assert row(fald, other)[2] > 0
    show({"FALD": fald}, other, 40)
    printed = capsys.readouterr().out
    assert "92.54" in printed
    assert "ours" in printed


def test_methods_of_the_dsvgd_networks_are_valid_and_comparable(tmp_path):
    from dsvgd_networks import CONFIG, METHODS, data_of, job, overrides
    from runs import with_overrides

    class Given:
        rounds, local_iterations, kde_bandwidth, data = 4, 30, 0.55, "mnist_5k"

    for method in METHODS:
        given = overrides(job(method, 20, 5, 50), Given, 4300) | {"data": data_of(Given)}
        config = with_overrides(CONFIG, given)
        assert config.draws == Given.rounds, method
        assert config.algorithm.batch_size == 100


def test_dsvgd_learns_digits_in_two_rounds(tmp_path):
    from dsvgd_networks import particle_curves, print_last
    from rounds import curves, diagrams, result

    lengths = ["clients=2", "algorithm.global_iterations=3", "algorithm.local_iterations=40", "algorithm.particles=3"]
    small = ["data={name: digits, test_fraction: 0.2}", "model.options={hidden: [10]}", "algorithm.step_size=0.02"]
    opened = made("dsvgd-networks.yaml", tmp_path / "run", *lengths, *small, "engine=interpreted")
    found = result(opened, 3)
    assert len(found.accuracy) == len(found.log_likelihood) == 3
    assert found.accuracy[-1] > max(0.5, found.accuracy[0])
    assert found.log_likelihood[-1] > found.log_likelihood[0]
    print_last("digits", {"DSVGD": {"10": found}})
    particle_curves([3], {"DSVGD": {"N = 3": found}}).savefig(tmp_path / "particles.png")
    curves({2: {"DSVGD": found}}).savefig(tmp_path / "curves.png")
    diagrams({"DSVGD": {"10": found}}, classes=10).savefig(tmp_path / "diagrams.png")
