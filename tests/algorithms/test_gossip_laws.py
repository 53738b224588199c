"""Stationary moments of the samplers that gossip on Gaussian clients against the exact laws, in both engines."""

import numpy as np
import pytest

from fedlangevin_mpi.evaluate import exact, exact_gossip
from fedlangevin_mpi.evaluate.exact_gossip import Gossip
from fedlangevin_mpi.topology import mixing_matrix, read_topology
from tests.gaussians import heterogeneous, z_scores
from tests.laws import STEP, assert_law, biases, sample

FRICTION = 2.0
LENGTHS = {
    "compiled": {"chains": 64, "iterations": 60_000, "thin": 11},
    "interpreted": {"chains": 400, "iterations": 12_000, "thin": 11},
}
GRAPHS = {
    "ring": "kind: ring",
    "star": "kind: star",
    "complete": "kind: complete",
    "disconnected": "kind: disconnected",
    "two components": "{kind: edges, clients: 4, edges: [[0, 2], [2, 3]]}",
}
LAWS = {
    "de_sgld": exact_gossip.de_sgld,
    "de_sghmc": lambda *args: exact_gossip.de_sghmc(*args, friction=FRICTION),
    "gradient_tracking": exact_gossip.gradient_tracking,
    "extra_sgld": exact_gossip.extra_sgld,
}


def write_topology(tmp_path, text, name="topology"):
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return str(path)


def matrix(path, clients):
    return mixing_matrix(read_topology(path), clients)


def run(tmp_path, means, precisions, engine, algorithm, topology, **more):
    if algorithm["name"] == "de_sghmc":
        algorithm = algorithm | {"friction": FRICTION}
    return sample(tmp_path, means, precisions, engine, algorithm, topology=topology, **LENGTHS[engine] | more)


CASES = [(name, graph, 4, "compiled") for name in ("de_sgld", "de_sghmc") for graph in GRAPHS]
CASES += [(name, graph, 3, "compiled") for name in ("de_sgld", "de_sghmc") for graph in ("star", "complete")]
CASES += [("de_sgld", "star", 3, "interpreted"), ("de_sgld", "two components", 4, "interpreted")]
CASES += [("de_sghmc", "ring", 4, "interpreted"), ("de_sghmc", "disconnected", 3, "interpreted")]
CASES += [(name, "star", 3, "interpreted") for name in ("gradient_tracking", "extra_sgld")]
CASES += [("gradient_tracking", graph, 4, "compiled") for graph in ("star", "two components")]
CASES += [("extra_sgld", graph, 4, "compiled") for graph in ("ring", "two components")]


@pytest.mark.parametrize(("name", "graph", "clients", "engine"), CASES)
def test_law(tmp_path, name, graph, clients, engine):
    means, precisions = heterogeneous(clients, 2)
    topology = write_topology(tmp_path, GRAPHS[graph])
    opened = run(tmp_path, means, precisions, engine, {"name": name}, topology)
    assert_law(opened, LAWS[name](means, precisions, matrix(topology, clients), STEP), clients)


SCHEDULES = {
    "cyclic": ({}, ["kind: ring", "kind: star", "kind: disconnected"]),
    "interval": ({"communication_interval": 3}, ["kind: ring"]),
    "random": ({"schedule": "random", "communication_interval": 2}, ["kind: ring", "kind: disconnected"]),
    "pairwise": ({"schedule": "pairwise"}, ["kind: path"]),
    "one_peer_exponential": ({"schedule": "one_peer_exponential"}, ["kind: exponential"]),
}
PATH_EDGES = [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_law_of_a_schedule(tmp_path, schedule):
    means, precisions = heterogeneous(4, 2)
    options, texts = SCHEDULES[schedule]
    paths = [write_topology(tmp_path, text, str(i)) for i, text in enumerate(texts)]
    if schedule == "pairwise":
        matrices = [np.eye(4) - np.outer(e, e) / 2 for e in (np.eye(4)[i] - np.eye(4)[j] for i, j in PATH_EDGES)]
    elif schedule == "one_peer_exponential":
        matrices = [(np.eye(4) + np.roll(np.eye(4), hop, 1)) / 2 for hop in (1, 2)]
    else:
        matrices = [matrix(path, 4) for path in paths]
    order = "random" if schedule in ("random", "pairwise") else "cyclic"
    gossip = Gossip(matrices, order, options.get("communication_interval", 1))
    opened = run(tmp_path, means, precisions, "compiled", {"name": "de_sgld"} | options, paths)
    assert_law(opened, exact_gossip.de_sgld(means, precisions, gossip, STEP), 4)


@pytest.mark.parametrize("name", ["gradient_tracking", "extra_sgld"])
def test_the_network_biases_de_sgld_and_not_what_corrects_for_it(tmp_path, name):
    means, precisions = heterogeneous(4, 2, spread=3.0)
    target = exact.posterior(means, precisions)
    topology = write_topology(tmp_path, "kind: star")
    corrected = run(tmp_path / name, means, precisions, "compiled", {"name": name}, topology)
    biased = run(tmp_path / "de_sgld", means, precisions, "compiled", {"name": "de_sgld"}, topology)
    assert biases(biased, target).max() > 10
    assert biases(corrected, target).max() < 4


@pytest.mark.parametrize("name", ["de_sgld", "de_sghmc"])
def test_a_noise_scale_that_is_2_percent_off_is_found(tmp_path, name):
    means, precisions = heterogeneous(4, 2)
    topology = write_topology(tmp_path, "kind: ring")
    wrong = {"name": name, "temperature": 1.02**2}
    opened = run(tmp_path, means, precisions, "compiled", wrong, topology)
    law = LAWS[name](means, precisions, matrix(topology, 4), STEP)
    assert np.abs(z_scores(opened.average()[:], exact.average(law, 4))[0]).max() > 4
    for client in range(4):
        assert np.abs(z_scores(opened.position(client)[:], exact.marginal(law, client, 4))[0]).max() > 4


def test_one_client_is_sgld(tmp_path):
    means, precisions = heterogeneous(1, 3)
    short = {"iterations": 1000, "warmup": 0, "thin": 1}
    expected = sample(tmp_path / "sgld", means, precisions, "compiled", {"name": "sgld"}, **short).average()[:]
    topology = write_topology(tmp_path, "kind: ring")
    for name in ("de_sgld", "gradient_tracking", "extra_sgld"):
        path = run(tmp_path / name, means, precisions, "compiled", {"name": name}, topology, chains=16, **short)
        np.testing.assert_allclose(path.average()[:], expected, rtol=0, atol=1e-11 * np.abs(expected).max())


def test_one_client_is_sghmc(tmp_path):
    # Chen, Fox, Guestrin (2014), eq. (15): the kernel's own stationary law, an autoregression of order two.
    means, precisions = heterogeneous(1, 3)
    topology = write_topology(tmp_path, "kind: ring")
    opened = run(tmp_path, means, precisions, "compiled", {"name": "de_sghmc"}, topology)
    h, basis = np.linalg.eigh(precisions[0])
    variances = 1 / (h * (1 - STEP**2 * h / (2 * (2 - STEP * FRICTION))))
    assert_law(opened, exact.Law(means[0], basis * variances @ basis.T), 1)


@pytest.mark.parametrize("interval", [1, 2])
def test_decentralised_gradient_descent_ends_at_its_fixed_point(tmp_path, interval):
    means, precisions = heterogeneous(4, 2)
    topology = write_topology(tmp_path, "kind: star")
    algorithm = {"name": "dgd", "communication_interval": interval}
    opened = run(tmp_path, means, precisions, "compiled", algorithm, topology, iterations=3000, thin=1, chains=2)
    law = exact_gossip.dgd(means, precisions, Gossip([matrix(topology, 4)], "cyclic", interval), STEP)
    for client in range(4):
        places = opened.position(client)[-2:]
        fixed = exact.marginal(law, client, 4)
        np.testing.assert_allclose(places.mean(0), np.broadcast_to(fixed.mean, (2, 2)), rtol=1e-10)
        np.testing.assert_allclose(places[:, 0].var(0), np.diag(fixed.covariance), atol=1e-12)
