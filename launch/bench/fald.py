"""How fast FALD and VR-FALD* are, as ratios, on two ranks. Start it with launch/bench/bench.sh.

(a) Gaussian, d=10, every draw stored: against a bare mpi4py Allreduce of the same vector in a Python loop.
(b) Logistic regression, 20,000 x 20 a client, batch 32, p_c=0.2: against SGLD of BlackJAX and posteriors, one process.
(c) 100 clients, 100 chains, d=20, nothing stored: against the same normals plus one matrix product (two for VR-FALD*).
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
from measure import COMM, ROUNDS, measure, ratio, report, seconds_an_iteration, together

from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.config import make_config


def gaussian(folder: Path) -> None:
    send, receive = np.zeros(10), np.zeros(10)
    base = {
        "clients": 2,
        "iterations": 400_000,
        "model": {"name": "gaussian"},
        "data": {"name": "synthetic_gaussian", "dim": 10},
    }
    times: dict[str, list[float]] = {"bare": [], "always": [], "tenth": [], "unstored": []}
    for _ in range(ROUNDS + 1):
        times["bare"].append(together(lambda: COMM.Allreduce(send, receive), 20_000))
        for name, probability, thin in (("always", 1.0, 1), ("tenth", 0.1, 1), ("unstored", 0.1, 400_000)):
            algorithm = {"name": "fald", "step_size": 1e-2, "communication_probability": probability}
            times[name].append(seconds_an_iteration(folder, base | {"algorithm": algorithm, "thin": thin}))
    bare, always, tenth, unstored = (values[1:] for values in times.values())  # the first compiles and warms up
    micro = f"{statistics.median(always) * 1e6:.2f} us against {statistics.median(bare) * 1e6:.2f} us"
    report("(a) FALD / bare Allreduce, p_c = 1", ratio(always, bare), "1.8", micro)
    micro = f"{statistics.median(tenth) * 1e6:.2f} us"
    report("(a) FALD / bare Allreduce, p_c = 0.1", ratio(tenth, bare), "0.6", micro)
    stored = [(a - b) * 1e6 for a, b in zip(tenth, unstored, strict=True)]
    report("(a) storing a draw, us", stored, "0.1", "difference of two runs")


def logistic(folder: Path) -> None:
    step = 1e-6
    values = {
        "clients": 2,
        "iterations": 200_000,
        "algorithm": {"name": "fald", "step_size": step, "communication_probability": 0.2, "batch_size": 32},
        "model": {"name": "logistic_regression"},
        "data": {"name": "synthetic_logistic", "rows": 20_000, "features": 20},
    }
    ours = [seconds_an_iteration(folder, values) for _ in range(ROUNDS + 1)][1:]
    with World(COMM) as world:
        peers: dict[str, float] = {}
        if world.rank == 0:  # the other rank sleeps
            import peers as other

            shard = make_config(values).data.shards([0], 2, 0)[0].arrays
            x, y = shard["x"], shard["y"].astype(float)
            peers["BlackJAX"] = other.blackjax_sgld(x, y, 32, step)
            peers["posteriors"] = other.posteriors_sgld(x, y, 32, step)
        world.wait()
    ours += [seconds_an_iteration(folder, values) for _ in range(ROUNDS)]
    for name, allowed in (("BlackJAX", "3 or more"), ("posteriors", "100 or more")):
        if COMM.rank == 0:
            micro = f"{peers[name] * 1e6:.2f} us against {statistics.median(ours) * 1e6:.2f} us"
            report(f"(b) {name} SGLD / FALD", [peers[name] / mine for mine in ours], allowed, micro)


def many_chains(folder: Path) -> None:
    clients, chains, dim, length = 50, 100, 20, 16
    generator = np.random.Generator(np.random.SFC64(1))
    positions, products = np.ones((clients, chains, dim)), np.empty((clients, chains, dim))
    matrices = generator.standard_normal((clients, dim, dim))
    base = {
        "clients": 100,
        "chains": 100,
        "iterations": 2_000,
        "thin": 2_000,
        "model": {"name": "gaussian"},
        "data": {"name": "synthetic_gaussian", "dim": dim},
    }
    found: dict[str, list[float]] = {"fald": [], "vr_fald": []}
    for _ in range(ROUNDS + 1):
        normals = together(lambda: draw(generator, positions), length)
        product = together(lambda: multiply(positions, matrices, products), length)
        for name, count in (("fald", 1), ("vr_fald", 2)):
            algorithm = {"name": name, "step_size": 1e-3, "communication_probability": 0.05}
            taken = seconds_an_iteration(folder, base | {"algorithm": algorithm})
            found[name].append(taken / (normals + count * product))
    report("(c) FALD / normals and a product", found["fald"][1:], "2", f"{normals * 1e6:.0f} + {product * 1e6:.0f} us")
    report("(c) VR-FALD* / normals and two products", found["vr_fald"][1:], "2.5", "")


def draw(generator: np.random.Generator, like: np.ndarray[Any, Any]) -> None:
    generator.standard_normal(like.shape)


def multiply(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
    np.matmul(a, b, out=out)


if __name__ == "__main__":
    measure({"a": gaussian, "b": logistic, "c": many_chains})
