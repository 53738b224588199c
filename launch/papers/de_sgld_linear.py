"""Bayesian linear regression of the DE-SGLD paper: how far agents and their average are from the posterior.

    python launch/papers/de_sgld_linear.py [--ranks N] [--output DIR] [--datasets 20]

Runs DE-SGLD and DE-SGHMC on three networks of 100 agents and prints the 2-Wasserstein distances of their draws to the
posterior beside the exact ones of the same data, then the exact ones over many data sets beside the published model's.
The figure shows the distances over the iterations, as the paper's figures do.

Gürbüzbalaban, Gao, Hu, Zhu: Decentralized stochastic gradient Langevin dynamics and Hamiltonian Monte Carlo, JMLR 2021.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from runs import NETWORKS, arguments, sample, save, with_overrides

from fedlangevin_mpi.evaluate import exact
from fedlangevin_mpi.evaluate.diagnostics import ess_bulk
from fedlangevin_mpi.evaluate.distances import gaussian_w2
from fedlangevin_mpi.evaluate.exact import Law
from fedlangevin_mpi.evaluate.exact_report import quadratic_potentials, stationary_law
from fedlangevin_mpi.store.reader import Run
from fedlangevin_mpi.topology import mixing_matrix, read_topology

Array = np.ndarray[Any, np.dtype[Any]]

CONFIG = Path(__file__).with_name("de-sgld-linear.yaml")
ALGORITHMS = {
    "de_sgld": {"name": "de_sgld", "step_size": 0.009},
    "de_sghmc": {"name": "de_sghmc", "step_size": 0.1, "friction": 7.0},
}
WARMUP = 500  # iterations; the figure shows the first of them
SHOWN = 150


class Distances(NamedTuple):
    """W2 to the posterior: mean over the agents, and of the network average."""

    agents: float
    average: float


# Exact distances of the paper's model over 20 data sets, (mean, standard deviation): agents, network average.
PUBLISHED = {
    ("de_sgld", "full"): ((0.205, 0.002), (0.0032, 0.0002)),
    ("de_sgld", "ring"): ((0.239, 0.004), (0.0041, 0.0008)),
    ("de_sgld", "disconnected"): ((0.288, 0.008), (0.0054, 0.0012)),
    ("de_sghmc", "full"): ((0.173, np.nan), (0.0030, np.nan)),
    ("de_sghmc", "ring"): ((0.212, np.nan), (0.0039, np.nan)),
    ("de_sghmc", "disconnected"): ((0.284, np.nan), (0.0051, np.nan)),
}


def of_draws(run: Run, target: Law) -> Distances:
    """Return the distances of Gaussians with the moments of the draws after the warmup."""
    kept = run.iterations >= WARMUP
    agents = [gaussian_w2(moments(run.position(i)[:][kept]), target) for i in range(run.clients)]
    return Distances(float(np.mean(agents)), gaussian_w2(moments(run.average()[:][kept]), target))


def of_law(law: Law, target: Law, clients: int) -> Distances:
    agents = [gaussian_w2(exact.marginal(law, i, clients), target) for i in range(clients)]
    return Distances(float(np.mean(agents)), gaussian_w2(exact.average(law, clients), target))


def moments(draws: Array) -> Law:
    """Return mean and covariance of draws `(draw, chain, dim)`."""
    states = draws.reshape(-1, draws.shape[-1])
    return Law(states.mean(0), np.cov(states.T))


def effective_draws(run: Run) -> float:
    """Return the smallest bulk effective size among the network average and the first agents."""
    kept = run.iterations >= WARMUP
    views = [run.average(), *(run.position(i) for i in range(10))]
    return min(float(ess_bulk(view[:][kept].swapaxes(0, 1)).min()) for view in views)


def exact_distances(algorithm: str, network: str, seed: int) -> tuple[Distances, Law]:
    """Return the distances of a sampler's stationary law, and the posterior, of one data set."""
    config = with_overrides(CONFIG, overrides(algorithm, network, seed))
    means, precisions = quadratic_potentials(config)
    clients = len(means)
    W = mixing_matrix(read_topology(NETWORKS[network]), clients)
    target = exact.posterior(means, precisions)
    return of_law(stationary_law(config.algorithm, [W])(means, precisions), target, clients), target


def overrides(algorithm: str, network: str, seed: int) -> dict[str, Any]:
    return {"algorithm": ALGORITHMS[algorithm], "topology": NETWORKS[network], "seed": seed}


def curves(run: Run, target: Law) -> tuple[Array, Array]:
    """Return iterations `(t,)` and, over the chains of each, distances of four agents and the average `(t, 5)`."""
    shown = run.iterations < SHOWN
    views = [*(run.position(i) for i in range(4)), run.average()]
    paths = [view[:][shown] for view in views]
    distances = [[gaussian_w2(moments(path[t : t + 1]), target) for path in paths] for t in range(int(shown.sum()))]
    return run.iterations[shown] + 1, np.array(distances)


def draw(axes: Any, iterations: Array, distances: Array, law: Distances, title: str) -> None:
    for agent in range(4):
        axes.plot(iterations, distances[:, agent], linewidth=1, label=f"agent {agent + 1}")
    axes.plot(iterations, distances[:, 4], color="black", label="network average")
    for level in law:
        axes.axhline(level, color="grey", linestyle=":", linewidth=1)
    axes.set(title=title, xlabel="iteration", yscale="log")


def main() -> None:
    parser = arguments("W2 to the posterior in the linear regression of the DE-SGLD paper.")
    parser.add_argument("--datasets", type=int, default=20, metavar="N", help="for the exact distances; 0: none")
    given = parser.parse_args()
    console, output = Console(width=120), given.output / "de-sgld-linear"
    ours = Table(
        "sampler", "network", "agents", "exact", "off", "average", "exact", "off", "effective draws",
        title="W2 to the posterior: draws, and the exact law of the same data",
    )  # fmt: skip
    figure = Figure(figsize=(12, 7), layout="constrained")
    panels = figure.subplots(len(ALGORITHMS), len(NETWORKS), sharex=True, sharey=True)
    for axes, (algorithm, network) in zip(panels.flat, PUBLISHED, strict=True):
        run = sample(CONFIG, output / f"{algorithm}-{network}", given.ranks, overrides(algorithm, network, given.seed))
        law, target = exact_distances(algorithm, network, given.seed)
        found = of_draws(run, target)
        ours.add_row(
            algorithm, network,
            f"{found.agents:.4f}", f"{law.agents:.4f}", f"{found.agents / law.agents - 1:+.1%}",
            f"{found.average:.5f}", f"{law.average:.5f}", f"{found.average / law.average - 1:+.1%}",
            f"{effective_draws(run):,.0f}",
        )  # fmt: skip
        draw(axes, *curves(run, target), law, f"{algorithm}, {network}")
    panels[0, 0].legend()
    for axes in panels[:, 0]:
        axes.set_ylabel("W2 to the posterior (dotted: exact, at last)")
    console.print(ours)
    save(figure, output / "w2")
    if given.datasets:
        console.print(over_data_sets(range(given.seed, given.seed + given.datasets)))


def over_data_sets(seeds: range) -> Table:
    table = Table(
        "sampler", "network", "agents", "published", "average", "published",
        title=f"exact W2 over {len(seeds)} data sets, mean (standard deviation)",
    )  # fmt: skip
    for (algorithm, network), published in PUBLISHED.items():
        found = np.array([exact_distances(algorithm, network, seed)[0] for seed in seeds])
        ours = zip(found.mean(0), found.std(0), strict=True)
        cells = [spread(*pair) for both in zip(ours, published, strict=True) for pair in both]
        table.add_row(algorithm, network, *cells)
    return table


def spread(mean: float, deviation: float) -> str:
    digits = 3 if mean > 0.1 else 4
    return f"{mean:.{digits}f}" + (f" ({deviation:.{digits}f})" if np.isfinite(deviation) else "")


if __name__ == "__main__":
    main()
