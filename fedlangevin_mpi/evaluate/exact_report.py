"""`fedlangevin exact`: posterior, stationary law and bias of a sampler on a config with Gaussian potentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fedlangevin_mpi.algorithms.averaging import Averaging
from fedlangevin_mpi.algorithms.base import Algorithm
from fedlangevin_mpi.algorithms.fald import Fald
from fedlangevin_mpi.algorithms.sgld import Sgld
from fedlangevin_mpi.algorithms.vr_fald import VrFald
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.evaluate import exact
from fedlangevin_mpi.evaluate.recursion import Law
from fedlangevin_mpi.models.gaussian import Gaussian

Array = np.ndarray[Any, np.dtype[Any]]


def exact_report(config: RunConfig) -> dict[str, Any]:
    """Return the exact posterior, the sampler's law and its bias, for the average over clients and for each of them.

    Reads the shards of all clients into this process.

    Raises:
        ConfigError: the model is not `gaussian`, `clients` is absent, or no exact law is known.
        ShardError: a shard is unreadable.
        FedLangevinError: the recursion is unstable.
    """
    if not isinstance(config.model, Gaussian):
        raise ConfigError(f"model.name: found {config.model.name!r}; allowed: gaussian, the model with exact laws")
    if config.clients is None:
        raise ConfigError("clients: missing; allowed: their number, since no ranks tell it here")
    shards = config.data.shards(range(config.clients), config.clients, config.seed)
    for shard in shards:
        config.model.facts(shard)
    means = np.stack([shard.arrays["mean"] for shard in shards])
    precisions = np.linalg.inv(np.stack([shard.arrays["covariance"] for shard in shards]))
    law = stationary_law(config.algorithm)(means, precisions)
    target = exact.posterior(means, precisions, getattr(config.algorithm, "temperature", 1.0))
    average, dim = exact.average(law, config.clients), means.shape[1]
    of_clients = [_client(law, client, dim) for client in range(config.clients)]
    return {
        "algorithm": config.algorithm.name,
        "clients": config.clients,
        "dim": dim,
        "posterior": _plain(target),
        "average": _plain(average) | _bias(average, target),
        "per_client": [_plain(one) | _bias(one, target) for one in of_clients],
    }


def stationary_law(algorithm: Algorithm) -> Callable[[Array, Array], Law]:
    """Return the function that gives an algorithm's exact law for means `(b, d)` and precisions `(b, d, d)`.

    Raises:
        ConfigError: no exact law is known for it, or for its step-size schedule.
    """
    if not isinstance(algorithm, Fald | VrFald | Sgld):
        raise ConfigError(
            f"algorithm.name: found {algorithm.name!r}; allowed: fald, sgld, vr_fald, whose laws are known"
        )
    step = (
        algorithm.step_size if isinstance(algorithm.step_size, float) else getattr(algorithm.step_size, "value", None)
    )
    if step is None:
        raise ConfigError("algorithm.step_size: found a decaying schedule; allowed: a constant, for a stationary law")
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


def _clock(algorithm: Averaging) -> dict[str, Any]:
    return {
        "communication_probability": algorithm.communication_probability,
        "communication_interval": algorithm.communication_interval,
    }


def _client(law: Law, client: int, dim: int) -> Law:
    here = slice(client * dim, (client + 1) * dim)
    return Law(law.mean[here], law.covariance[here, here])


def _plain(law: Law) -> dict[str, Any]:
    return {"mean": law.mean.tolist(), "covariance": law.covariance.tolist()}


def _bias(law: Law, target: Law) -> dict[str, Any]:
    return {
        "mean_bias": (law.mean - target.mean).tolist(),
        "sd_ratio": np.sqrt(np.diag(law.covariance) / np.diag(target.covariance)).tolist(),
    }


def print_exact_report(report: dict[str, Any], most: int = 20) -> None:
    """Print the posterior beside the law of the average over clients, a row a coordinate."""
    title = f"{report['algorithm']}, {report['clients']} clients: law of the average over clients"
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
    Console().print(table)
