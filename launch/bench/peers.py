"""One process of a peer on logistic regression: seconds an iteration of SGLD or DE-SGLD.

Imported late, on rank 0 only: JAX and torch take seconds to start and memory that the other rank needs.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def blackjax_sgld(x: Array, y: Array, batch: int, step_size: float, iterations: int = 20_000, rounds: int = 3) -> float:
    """Return the best of `rounds` of BlackJAX's SGLD in one jitted scan."""
    import blackjax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    rows, (n, dim) = (jnp.asarray(x), jnp.asarray(y)), x.shape

    def log_prior(theta: Any) -> Any:
        return -0.5 * jnp.sum(theta**2)

    def log_likelihood(theta: Any, row: Any) -> Any:
        z = row[0] @ theta
        return row[1] * z - jnp.logaddexp(0.0, z)

    sgld = blackjax.sgld(blackjax.sgmcmc.gradients.grad_estimator(log_prior, log_likelihood, n))

    def scan(key: Any, theta: Any) -> Any:
        def step(theta: Any, key: Any) -> Any:
            rows_key, noise_key = jax.random.split(key)
            index = jax.random.randint(rows_key, (batch,), 0, n)  # with replacement, the cheaper way
            theta = sgld.step(noise_key, theta, (rows[0][index], rows[1][index]), step_size)
            return theta, theta

        return jax.lax.scan(step, theta, jax.random.split(key, iterations))

    jitted = jax.jit(scan)
    return _best(lambda: jax.block_until_ready(jitted(jax.random.key(0), jnp.zeros(dim))), iterations, rounds)


def posteriors_sgld(x: Array, y: Array, batch: int, step_size: float, iterations: int = 300, rounds: int = 3) -> float:
    """Return the best of `rounds` of the package `posteriors`' SGLD, its update called in a Python loop."""
    with warnings.catch_warnings():  # of what tensordict will change
        warnings.simplefilter("ignore", FutureWarning)
        import posteriors
    import torch

    torch.set_num_threads(1)
    xs, ys, n = torch.from_numpy(x), torch.from_numpy(y), len(x)
    rng = np.random.default_rng(0)

    def log_posterior(theta: Any, rows: Any) -> Any:
        z = rows[0] @ theta["w"]
        log_likelihood = (rows[1] * z - torch.nn.functional.softplus(z)).mean() * n
        return log_likelihood - 0.5 * (theta["w"] ** 2).sum(), torch.tensor([])

    transform = posteriors.sgmcmc.sgld.build(log_posterior, lr=step_size)

    def loop() -> None:
        state = transform.init({"w": torch.zeros(x.shape[1], dtype=torch.float64)})
        for _ in range(iterations):
            index = rng.integers(0, n, batch)
            state, _ = transform.update(state, (xs[index], ys[index]))

    return _best(loop, iterations, rounds)


def numpy_de_sgld(
    shards: list[tuple[Array, Array]], W: Array, chains: int, batch: int, step_size: float, iterations: int = 300
) -> float:
    """Return seconds an iteration of DE-SGLD as a NumPy loop over iterations, vectorised over agents and chains."""
    rng = np.random.default_rng(0)
    x, y = np.concatenate([x for x, _ in shards]), np.concatenate([y for _, y in shards])
    sizes = np.array([len(y) for _, y in shards])
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    agents, dim = len(shards), x.shape[1]
    scale = (sizes / batch)[:, None, None]

    def loop() -> None:
        theta = np.zeros((agents, chains, dim))
        for _ in range(iterations):
            rows = (rng.random((agents, chains, batch)) * sizes[:, None, None]).astype(int) + offsets[:, None, None]
            features = x[rows]
            z = np.einsum("acrd,acd->acr", features, theta)
            slope = scale * np.einsum("acr,acrd->acd", 1 / (1 + np.exp(-z)) - y[rows], features) + theta / 600
            mixed = np.tensordot(W, theta, 1)
            theta = mixed - step_size * slope + np.sqrt(2 * step_size) * rng.standard_normal(theta.shape)

    return _best(loop, iterations, rounds=3)


def desgld(
    shards: list[tuple[Array, Array]], W: Array, chains: int, batch: int, step_size: float, iterations: int = 3
) -> float:
    """Return seconds an iteration of the package desgld, which loops over chains, agents and rows."""
    from desgld import DeSGLD

    x, y = [x for x, _ in shards], [y for _, y in shards]
    dim = x[0].shape[1]
    own = DeSGLD(len(shards), chains, 1, step_size, iterations, dim, batch, 100.0, x, y, W, None, "logistic")
    return _best(own.vanila_desgld, iterations, rounds=2)


def _best(run: Any, iterations: int, rounds: int) -> float:
    run()  # compile, warm up
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        seconds.append((time.perf_counter() - started) / iterations)
    return min(seconds)
