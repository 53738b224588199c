"""One process of a peer on logistic regression: seconds an iteration of SGLD, minibatches drawn without replacement.

Imported late, on rank 0 only: JAX and torch take seconds to start and memory that the other rank needs.
"""

from __future__ import annotations

import time
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


def _best(run: Any, iterations: int, rounds: int) -> float:
    run()  # compile, warm up
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        seconds.append((time.perf_counter() - started) / iterations)
    return min(seconds)
