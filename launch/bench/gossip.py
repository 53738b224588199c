"""How fast the decentralised samplers are, as ratios, on two ranks. Start it with launch/bench/bench.sh gossip.

(a) DE-SGLD on a ring, d=10, every draw stored: against the bare persistent neighbour exchange called from Python.
(b) 6 agents, 50 chains, breast cancer, batch 32, own rows for every chain: against the package desgld and a vectorised
    NumPy loop, each in one process.
(c) Messages and bytes a client and iteration on rings of 4 to 64 clients: flat.
(d) `exchange: sendrecv` against the neighbour collective.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
from measure import COMM, ROUNDS, measure, ratio, report, seconds_an_iteration, together
from mpi4py import MPI

import fedlangevin_mpi
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.config import make_config

RING = "topologies/ring.yaml"
GAUSSIAN: dict[str, Any] = {
    "clients": 2,
    "iterations": 400_000,
    "model": {"name": "gaussian"},
    "data": {"name": "synthetic_gaussian", "dim": 10},
    "topology": RING,
    "algorithm": {"name": "de_sgld", "step_size": 1e-2},
}
CANCER: dict[str, Any] = {
    "clients": 6,
    "chains": 50,
    "iterations": 4_000,
    "thin": 4_000,  # the peers store nothing either
    "model": {"name": "logistic_regression", "prior_scale": 10.0},
    "data": {"name": "breast_cancer", "standardize": "pooled", "intercept": True},
    "topology": RING,
    "algorithm": {"name": "de_sgld", "step_size": 8e-4, "batch_size": 32},
}


def ring(folder: Path) -> None:
    other = [1 - COMM.rank]
    graph = COMM.Create_dist_graph_adjacent(other, other)
    request = graph.Neighbor_alltoallv_init(np.zeros(10), np.zeros(10))

    def bare() -> None:
        request.Start()
        request.Wait()

    bares, ours = [], []
    for _ in range(ROUNDS + 1):
        bares.append(together(bare, 20_000))
        ours.append(seconds_an_iteration(folder, GAUSSIAN))
    request.Free()
    graph.Free()
    micro = f"{statistics.median(ours[1:]) * 1e6:.2f} us against {statistics.median(bares[1:]) * 1e6:.2f} us"
    report("(a) DE-SGLD / bare neighbour exchange", ratio(ours[1:], bares[1:]), "2", micro)


def cancer(folder: Path) -> None:
    ours = [seconds_an_iteration(folder, CANCER) for _ in range(ROUNDS + 1)][1:]
    with World(COMM) as world:
        peers: dict[str, float] = {}
        if world.rank == 0:  # the other rank sleeps
            import peers as other

            shards, W = _shards(), _ring_of(6)
            peers["NumPy"] = other.numpy_de_sgld(shards, W, chains=50, batch=32, step_size=8e-4)
            peers["desgld"] = other.desgld(shards, W, chains=50, batch=32, step_size=8e-4)
        world.wait()
    ours += [seconds_an_iteration(folder, CANCER) for _ in range(ROUNDS)]
    for name, allowed in (("desgld", "30 or more"), ("NumPy", "3 or more")):
        if COMM.rank == 0:
            micro = f"{peers[name] * 1e6:.0f} us against {statistics.median(ours) * 1e6:.0f} us"
            report(f"(b) {name} / DE-SGLD", [peers[name] / mine for mine in ours], allowed, micro)


def _shards() -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    config = make_config(CANCER)
    raw = config.data.shards(range(6), 6, 0)
    standardization = config.data.standardization(config.data.moments(raw))
    prepared = [config.data.prepared(shard, standardization).arrays for shard in raw]
    return [(arrays["x"], arrays["y"].astype(float)) for arrays in prepared]


def _ring_of(clients: int) -> np.ndarray[Any, Any]:
    near = np.eye(clients) + np.roll(np.eye(clients), 1, axis=1) + np.roll(np.eye(clients), -1, axis=1)
    weights: np.ndarray[Any, Any] = near / 3
    return weights


def flat(folder: Path) -> None:
    for clients in (4, 8, 16, 32, 64):
        config = make_config(
            GAUSSIAN | {"clients": clients, "iterations": 1000, "output": {"directory": str(folder / "run")}}
        )
        run = fedlangevin_mpi.run(config, force=True)
        assert run.statistics is not None
        per = clients * 1000
        carried = run.statistics.communication
        if COMM.rank == 0:
            counts = f"{carried.messages / per:.2f} messages, {carried.bytes / per:.0f} bytes"
            print(f"(c) ring of {clients:2} clients, a client and iteration: {counts}", flush=True)


def ways(folder: Path) -> None:
    base = GAUSSIAN | {"clients": 8, "iterations": 100_000, "thin": 100}
    collective, sendrecv = [], []
    for _ in range(ROUNDS + 1):
        collective.append(seconds_an_iteration(folder, base))
        algorithm = GAUSSIAN["algorithm"] | {"exchange": "sendrecv"}
        sendrecv.append(seconds_an_iteration(folder, base | {"algorithm": algorithm}))
    report("(d) sendrecv / neighbour collective", ratio(sendrecv[1:], collective[1:]), "any", MPI.get_vendor()[0])


if __name__ == "__main__":
    measure({"a": ring, "b": cancer, "c": flat, "d": ways})
