"""`fedlangevin exact`: posterior, stationary law and bias of a sampler on a config with quadratic potentials."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from fedlangevin_mpi.algorithms.averaging import Averaging
from fedlangevin_mpi.algorithms.base import Method
from fedlangevin_mpi.algorithms.de_sghmc import DeSghmc
from fedlangevin_mpi.algorithms.de_sgld import DeSgld
from fedlangevin_mpi.algorithms.dgd import Dgd
from fedlangevin_mpi.algorithms.dsgld import TravellingChains
from fedlangevin_mpi.algorithms.extra_sgld import ExtraSgld
from fedlangevin_mpi.algorithms.fald import Fald
from fedlangevin_mpi.algorithms.fsgld import Fsgld
from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.algorithms.gradient_tracking import GradientTracking
from fedlangevin_mpi.algorithms.sgld import Sgld
from fedlangevin_mpi.algorithms.vr_fald import VrFald
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.evaluate import exact, exact_gossip, exact_travelling
from fedlangevin_mpi.evaluate.distances import gaussian_w2
from fedlangevin_mpi.evaluate.recursion import Law
from fedlangevin_mpi.evaluate.target import all_clients, prior_weight

Array = np.ndarray[Any, np.dtype[Any]]


_GOSSIPING: dict[type[Gossiping], Callable[..., Law]] = {
    DeSgld: exact_gossip.de_sgld,
    DeSghmc: exact_gossip.de_sghmc,
    Dgd: exact_gossip.dgd,
    ExtraSgld: exact_gossip.extra_sgld,
    GradientTracking: exact_gossip.gradient_tracking,
}


def exact_report(config: RunConfig, mixing: Sequence[Array] = ()) -> dict[str, Any]:
    """Return the exact posterior, the sampler's law and its bias, for the average over clients and for each of them.

    Reads the shards of all clients into this process. `w2` is the distance of Gaussians with a law's moments and the
    posterior's. Chains that travel have one law, at the end of a round, `average`, and none per client.

    Args:
        config: of the run.
        mixing: the mixing matrices `(b, b)` of an algorithm that gossips.

    Raises:
        ConfigError: the potentials are not quadratic, gradients are not full, `clients` is absent, or no exact law is
            known.
        ShardError: a shard is unreadable.
        FedLangevinError: the recursion is unstable.
    """
    means, precisions = quadratic_potentials(config)
    if config.algorithm.batch_size is not None:
        found = config.algorithm.batch_size
        raise ConfigError(f"algorithm.batch_size: found {found}; allowed: absent, since laws are of full gradients")
    clients, dim = means.shape
    travels = isinstance(config.algorithm, TravellingChains)
    if travels and (scale := getattr(config.model, "prior_scale", math.inf)) < math.inf:
        raise ConfigError(
            f"model.prior_scale: found {scale}; allowed: inf, the law of {config.algorithm.name} has none"
        )
    law = stationary_law(config.algorithm, mixing)(means, precisions)
    target = exact.posterior(means, precisions, getattr(config.algorithm, "temperature", 1.0))
    average = law if travels else exact.average(law, clients)
    of_clients = [] if travels else [exact.marginal(law, client, clients) for client in range(clients)]
    return {
        "algorithm": config.algorithm.name,
        "clients": clients,
        "dim": dim,
        "posterior": _plain(target),
        "average": _plain(average) | _bias(average, target),
        "per_client": [_plain(one) | _bias(one, target) for one in of_clients],
    }


def quadratic_potentials(config: RunConfig) -> tuple[Array, Array]:
    """Return means `(b, d)` and precisions `(b, d, d)` of all clients' potentials, whose sum over T is the target's.

    Raises:
        ConfigError: the potentials are not quadratic, or `clients` is absent.
        ShardError: a shard is unreadable.
    """
    potentials = config.model.quadratic(all_clients(config, prior_weight(config.algorithm)).data)
    if potentials is None:
        raise ConfigError(
            f"model.name: found {config.model.name!r}; allowed: gaussian, linear_regression, the models with exact laws"
        )
    return potentials


def stationary_law(algorithm: Method, mixing: Sequence[Array] = ()) -> Callable[[Array, Array], Law]:
    """Return the function that gives an algorithm's exact law for means `(b, d)` and precisions `(b, d, d)`.

    Args:
        algorithm: with its hyperparameters.
        mixing: the mixing matrices of one that gossips.

    Raises:
        ConfigError: no exact law is known for it, or for its step-size schedule.
    """
    if not isinstance(algorithm, Fald | VrFald | Sgld | Gossiping | TravellingChains):
        raise ConfigError(
            f"algorithm.name: found {algorithm.name!r}; allowed: sgld, fald, vr_fald, dsgld, fsgld and those that "
            "gossip, whose laws are known"
        )
    step = (
        algorithm.step_size if isinstance(algorithm.step_size, float) else getattr(algorithm.step_size, "value", None)
    )
    if step is None:
        raise ConfigError("algorithm.step_size: found a decaying schedule; allowed: a constant, for a stationary law")
    if isinstance(algorithm, Gossiping):
        return _gossiping_law(algorithm, step, mixing)
    if isinstance(algorithm, TravellingChains):
        return _travelling_law(algorithm, step)
    if isinstance(algorithm, Sgld):
        return lambda means, precisions: exact.sgld(means, precisions, step, algorithm.temperature)
    options: dict[str, Any] = _clock(algorithm) | {
        "noise_correlation": algorithm.noise_correlation,
        "temperature": algorithm.temperature,
    }
    if isinstance(algorithm, VrFald):
        options["reference_probability"] = algorithm.reference_rate()
        return lambda means, precisions: exact.vr_fald(means, precisions, step, **options)
    options["participants"] = algorithm.participants
    return lambda means, precisions: exact.fald(means, precisions, step, **options)


def _gossiping_law(algorithm: Gossiping, step: float, mixing: Sequence[Array]) -> Callable[[Array, Array], Law]:
    order: Literal["cyclic", "random"] = "random" if algorithm.schedule in ("random", "pairwise") else "cyclic"
    gossip = exact_gossip.Gossip(mixing, order, algorithm.communication_interval)
    options = {name: getattr(algorithm, name) for name in ("friction", "temperature") if hasattr(algorithm, name)}
    law = _GOSSIPING[type(algorithm)]
    return lambda means, precisions: law(means, precisions, gossip, step, **options)


def _travelling_law(algorithm: TravellingChains, step: float) -> Callable[[Array, Array], Law]:
    if algorithm.schedule == "round_robin":
        raise ConfigError("algorithm.schedule: found 'round_robin'; allowed: permutation, random, for a stationary law")

    def law(means: Array, precisions: Array) -> Law:
        steps = [algorithm.local_steps(agent, len(means)) for agent in range(len(means))]
        conducive = isinstance(algorithm, Fsgld)
        return exact_travelling.dsgld(means, precisions / algorithm.temperature, step, steps, conducive)

    return law


def _clock(algorithm: Averaging) -> dict[str, Any]:
    return {
        "communication_probability": algorithm.communication_probability,
        "communication_interval": algorithm.communication_interval,
    }


def _plain(law: Law) -> dict[str, Any]:
    return {"mean": law.mean.tolist(), "covariance": law.covariance.tolist()}


def _bias(law: Law, target: Law) -> dict[str, Any]:
    return {
        "mean_bias": (law.mean - target.mean).tolist(),
        "sd_ratio": np.sqrt(np.diag(law.covariance) / np.diag(target.covariance)).tolist(),
        "w2": gaussian_w2(law, target),
    }


def print_exact_report(report: dict[str, Any], most: int = 20) -> None:
    """Print the posterior beside the law of the average over clients, a row a coordinate."""
    of = "the average over clients" if report["per_client"] else "a chain at the end of a round"
    title = f"{report['algorithm']}, {report['clients']} clients: law of {of}"
    table = Table("coordinate", "posterior mean", "posterior sd", "mean", "sd", "bias / sd", "sd ratio", title=title)
    posterior, average = report["posterior"], report["average"]
    for i in range(min(report["dim"], most)):
        sd = posterior["covariance"][i][i] ** 0.5
        numbers = (
            posterior["mean"][i],
            sd,
            average["mean"][i],
            average["covariance"][i][i] ** 0.5,
            average["mean_bias"][i] / sd,
            average["sd_ratio"][i],
        )
        table.add_row(f"x[{i}]", *(f"{number:.5g}" for number in numbers))
    if report["dim"] > most:
        table.caption = f"and {report['dim'] - most} more coordinates: --json has all"
    console = Console()
    console.print(table)
    of_clients = [client["w2"] for client in report["per_client"]]
    beside = f", {np.mean(of_clients):.4g} of a client (their mean)" if of_clients else ""
    console.print(f"W2 to the posterior: {average['w2']:.4g} of the average{beside}")
