"""The Gaussian mixtures of the DSVGD paper: how far each method is from the exact posterior, and its contours.

    python launch/papers/dsvgd_mixture.py [--ranks N] [--output DIR]

Prints KL(exact || approximate) on a grid after each global iteration, and after 5 of them for several numbers of local
iterations (figure 7), and draws the contours in two dimensions (figure 8). Centralised methods do as many iterations in
all. The approximation is a KDE of the particles with the bandwidth that DSVGD works with, of PVI and GVI their
Gaussian. The paper has figures only; what it reports is the order: particles end below the Gaussians, U-DSVGD and DSVGD
near SVGD.

Kassab, Simeone: Federated generalized Bayesian learning via distributed Stein variational gradient descent, 2020,
appendices B.1 and B.2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from runs import arguments, sample, save
from scipy.stats import multivariate_normal

from fedlangevin_mpi.config import RunConfig, make_config
from fedlangevin_mpi.evaluate.density import log_kde
from fedlangevin_mpi.evaluate.distances import grid, grid_kl
from fedlangevin_mpi.evaluate.target import target_of
from fedlangevin_mpi.store.reader import Run

Array = np.ndarray[Any, np.dtype[Any]]

CONFIG = Path(__file__).parent / "dsvgd-mixture.yaml"
BANDWIDTH = 0.55
STEIN: dict[str, Any] = {"particles": 200, "step_size": 0.05, "local_iterations": 200}
GAUSSIAN: dict[str, Any] = {
    "particles": 200,
    "step_size": {"name": "polynomial", "initial": 0.3, "offset": 50, "power": 0.6},
    "samples": 64,
    "local_iterations": 200,
}
METHODS: dict[str, dict[str, Any]] = {"gvi": GAUSSIAN, "pvi": GAUSSIAN, "svgd": STEIN, "u_dsvgd": STEIN, "dsvgd": STEIN}
LOCAL = (10, 30, 100, 300)
TWO_DIMENSIONS: dict[str, Any] = {
    "data": {"name": "toy_mixture_2d"},
    "model": {"name": "gaussian_mixture", "prior": {"name": "normal", "covariance": [[4.0, 2.0], [2.0, 4.0]]}},
}


def overrides(name: str, iterations: int, **more: Any) -> dict[str, Any]:
    """Return what differs from the config; a centralised method holds all data at one client."""
    algorithm = {"name": name, "global_iterations": iterations} | METHODS[name] | more
    return {"clients": 1 if name in ("gvi", "svgd") else 2, "algorithm": algorithm}


def log_density(run: Run, draw: int, points: Array) -> Array:
    """Return the log of the approximation after a global iteration at points `(m, d)`."""
    if run.algorithm not in ("pvi", "gvi"):
        return log_kde(points, run.position(-1)[draw], BANDWIDTH)
    eta = run.natural_parameters()[draw]
    precision = -(eta[1:] + eta[1:].T)
    covariance = np.linalg.inv(precision)
    return np.asarray(multivariate_normal(covariance @ eta[0], covariance).logpdf(points))


def exact(run: Run, points: Array) -> Array:
    """Return the log of the exact posterior, up to a constant."""
    config: RunConfig = make_config(run.config)
    return target_of(config).log_density(points)


def divergences(run: Run, draws: list[int]) -> list[float]:
    points = grid(-9.0, 9.0, 4001, 1)
    log_p = exact(run, points)
    return [grid_kl(log_p, log_density(run, draw, points)) for draw in draws]


def print_table(title: str, heads: list[str], rows: dict[str, list[float]]) -> None:
    table = Table(title=title)
    for head in ("method", *heads):
        table.add_column(head, justify="left" if head == "method" else "right")
    for name, values in rows.items():
        table.add_row(name, *(f"{value:.4f}" for value in values))
    Console(width=120).print(table)


def contours(runs: dict[str, Run]) -> Figure:
    """Return the approximations over the exact posterior, dashed."""
    points = grid(-5.0, 5.0, 121, 2)
    shape = (121, 121)
    figure = Figure(figsize=(12, 3.2), layout="constrained")
    for axes, (name, run) in zip(figure.subplots(1, len(runs), sharey=True), runs.items(), strict=True):
        for log_p, style, colour in ((exact(run, points), "--", "C3"), (log_density(run, -1, points), "-", "C0")):
            p = np.exp(log_p - log_p.max()).reshape(shape)
            x, y = points[:, 0].reshape(shape), points[:, 1].reshape(shape)
            axes.contour(x, y, p, [0.1, 0.3, 0.6, 0.9], linestyles=style, colors=colour)
        axes.set_title(name)
    return figure


def curves(global_: dict[str, list[float]], local: dict[str, list[float]]) -> Figure:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name in global_:
        left.semilogy(range(1, len(global_[name]) + 1), global_[name], marker=".", label=name)
        right.loglog(LOCAL, local[name], marker=".", label=name)
    left.set(xlabel="global iteration", ylabel="KL(exact || approximate)")
    right.set(xlabel="local iterations, 5 global ones")
    left.legend()
    return figure


def main() -> None:
    options = arguments(__doc__.splitlines()[0] if __doc__ else "").parse_args()
    folder = options.output / "dsvgd-mixture"

    def run(name: str, label: str, values: dict[str, Any]) -> Run:
        ranks = 1 if name in ("gvi", "svgd") else options.ranks
        return sample(CONFIG, folder / f"{name}-{label}", ranks, {"seed": options.seed} | values)

    global_ = {name: divergences(run(name, "i", overrides(name, 10)), list(range(10))) for name in METHODS}
    print_table("KL after global iterations, L = 200", [str(i + 1) for i in range(10)], global_)
    local = {
        name: [divergences(run(name, str(n), overrides(name, 5, local_iterations=n)), [-1])[0] for n in LOCAL]
        for name in METHODS
    }
    print_table("KL after 5 global iterations", [f"L = {n}" for n in LOCAL], local)
    save(curves(global_, local), folder / "kl")
    drawn = {n: run(n, "2d", overrides(n, 5) | TWO_DIMENSIONS) for n in ("gvi", "pvi", "svgd", "dsvgd")}
    save(contours(drawn), folder / "contours")


if __name__ == "__main__":
    main()
