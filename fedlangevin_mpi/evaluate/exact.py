"""Exact stationary laws of the samplers on Gaussian potentials `U_i(x) = 1/2 (x - m_i)' H_i (x - m_i)`.

With full gradients and a constant step every sampler is a linear random recursion (`evaluate.recursion`), whose
branches are the outcomes of its coins. What a run estimates can so be compared with what it should, bias included.

Means are `(b, d)` arrays, precisions `H_i` are `(b, d, d)`, symmetric. Laws are those of `(x_1, ..., x_b)`, one client
behind the other: mean `(b d,)`, covariance `(b d, b d)`; `average` gives the law of the clients' mean. The samplers
that gossip are in `evaluate.exact_gossip`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy.sparse.linalg import LinearOperator

from fedlangevin_mpi.errors import FedLangevinError
from fedlangevin_mpi.evaluate.recursion import Array, Branch, Law, cycle, mixture

__all__ = ["Law", "average", "checked", "fald", "marginal", "posterior", "sgld", "vr_fald"]

Step = Callable[[Array, Array], Array]
"""The noiseless iteration: maps states `(n, k)`, a column each, and the clients' means `(b, d, 1)` to new states."""


def posterior(means: Array, precisions: Array, temperature: float = 1.0) -> Law:
    """Return the law `N(P^-1 sum_i H_i m_i, T P^-1)`, `P = sum_i H_i`, that the samplers target.

    Raises:
        ValueError: the shapes do not fit.
    """
    means, precisions = checked(means, precisions)
    covariance = np.linalg.inv(precisions.sum(0))
    return Law(covariance @ (precisions @ means).sum(0)[:, 0], temperature * covariance)


def sgld(means: Array, precisions: Array, step_size: float, temperature: float = 1.0) -> Law:
    """Return the law of the unadjusted Langevin algorithm on `U = sum_i U_i`: `T (P (I - gamma P / 2))^-1`, `(d, d)`.

    Args:
        means: `(b, d)`.
        precisions: `(b, d, d)`.
        step_size: gamma.
        temperature: T, the target is `exp(-U / T)`.

    Raises:
        FedLangevinError: `gamma` is not below 2 over the largest eigenvalue of `P`.
    """
    target = posterior(means, precisions)
    curvature, basis = np.linalg.eigh(checked(means, precisions)[1].sum(0))
    if step_size * curvature[-1] >= 2:
        raise FedLangevinError(f"step_size {step_size:g} is unstable; allowed: below {2 / curvature[-1]:.6g}")
    return Law(target.mean, (basis * (temperature / (curvature * (1 - step_size * curvature / 2)))) @ basis.T)


def fald(
    means: Array,
    precisions: Array,
    step_size: float,
    *,
    communication_probability: float | None = None,
    communication_interval: int | None = None,
    noise_correlation: float = 0.0,
    participants: int | None = None,
    temperature: float = 1.0,
) -> Law:
    """Return the law of FALD (Plassier et al. 2023, eqs. (4)-(7)); with `participants`, of FA-LD (Deng et al. 2021).

    Args:
        means: `(b, d)`.
        precisions: `(b, d, d)`.
        step_size: gamma.
        communication_probability: p_c; 1 where neither clock is given.
        communication_interval: average in every m-th iteration instead. The law is then the mean over the m phases:
            what the draws of a run have whose `thin` shares no factor with m.
        noise_correlation: tau.
        participants: average only a random subset of s clients, whose mean all take; private noise is scaled by
            `sqrt(s/b)`.
        temperature: T.

    Raises:
        FedLangevinError: the recursion is unstable.
        ValueError: the shapes do not fit, both clocks are given, or `participants` is not in 1, ..., b.
    """
    means, precisions = checked(means, precisions)
    clients, d, _ = means.shape
    size = clients if participants is None else participants
    private = (1 - noise_correlation) * size / clients
    noise = _client_noise(clients, step_size * temperature, noise_correlation / clients, private)

    def local(state: Array, m: Array) -> Array:
        x = state.reshape(clients, d, -1)
        return np.asarray(x - step_size * (precisions @ (x - m))).reshape(state.shape)

    def averaged(weights: Array, state: Array, m: Array) -> Array:
        return _average(local(state, m).reshape(clients, d, -1), weights).reshape(state.shape)

    alone = [_branch(1.0, local, means, np.kron(noise, np.eye(d)))]
    subsets = _subset_weights(clients, size)
    together = [
        _branch(1 / len(subsets), partial(averaged, w), means, np.kron(_averaged_noise(noise, w), np.eye(d)))
        for w in subsets
    ]
    return _clocked(alone, together, communication_probability, communication_interval, _consensus(clients, d))


def vr_fald(
    means: Array,
    precisions: Array,
    step_size: float,
    *,
    reference_probability: float,
    communication_probability: float | None = None,
    communication_interval: int | None = None,
    noise_correlation: float = 0.0,
    temperature: float = 1.0,
) -> Law:
    """Return the law of VR-FALD* (Plassier et al. 2023, eqs. (15)-(18)) with full gradients.

    The recursion's state is `(x_1, ..., x_b, Y)`: the shift `C = (1/b) sum_i H_i (Y - m_i)` is a function of the
    reference point. The law returned is that of the clients alone.

    Args:
        means: `(b, d)`.
        precisions: `(b, d, d)`.
        step_size: gamma.
        reference_probability: q_c.
        communication_probability: p_c; 1 where neither clock is given.
        communication_interval: average in every m-th iteration instead; see `fald`.
        noise_correlation: tau.
        temperature: T.

    Raises:
        FedLangevinError: the recursion is unstable.
        ValueError: the shapes do not fit, or both clocks are given.
    """
    means, precisions = checked(means, precisions)
    clients, d, _ = means.shape
    everyone = np.full(clients, 1 / clients)
    noise = _client_noise(clients, step_size * temperature, noise_correlation / clients, 1 - noise_correlation)

    def step(communicate: bool, refresh: bool, state: Array, m: Array) -> Array:
        blocks = state.reshape(clients + 1, d, -1)
        x, reference = blocks[:clients], blocks[clients]
        shift = (precisions @ (reference - m)).mean(0)
        y = x - step_size * (precisions @ (x - reference) + shift)
        after = _average(y, everyone) if communicate else y
        return np.concatenate([after, [x.mean(0) if refresh else reference]]).reshape(state.shape)

    def branches(communicate: bool) -> list[Branch]:
        of_clients = np.zeros((clients + 1, clients + 1))  # the reference point takes no noise
        of_clients[:-1, :-1] = _averaged_noise(noise, everyone) if communicate else noise
        return [
            _branch(q, partial(step, communicate, refresh), means, np.kron(of_clients, np.eye(d)))
            for q, refresh in ((1 - reference_probability, False), (reference_probability, True))
        ]

    slow = _consensus(clients + 1, d)
    law = _clocked(branches(False), branches(True), communication_probability, communication_interval, slow)
    return Law(law.mean[: clients * d], law.covariance[: clients * d, : clients * d])


def average(law: Law, clients: int) -> Law:
    """Return the law of `(1/b) sum_i x_i`, given that of `(x_1, ..., x_b)`."""
    blocks = law.covariance.reshape(clients, -1, clients, len(law.mean) // clients)
    return Law(law.mean.reshape(clients, -1).mean(0), blocks.mean((0, 2)))


def marginal(law: Law, client: int, clients: int) -> Law:
    """Return the law of `x_client`, given that of `(x_1, ..., x_b)`."""
    d = len(law.mean) // clients
    here = slice(client * d, client * d + d)
    return Law(law.mean[here], law.covariance[here, here])


def checked(means: Array, precisions: Array) -> tuple[Array, Array]:
    """Return the means as columns, `(b, d, 1)`, and the precisions, both in float64.

    Raises:
        ValueError: the shapes do not fit.
    """
    means, precisions = np.asarray(means, float), np.asarray(precisions, float)
    if means.ndim != 2 or precisions.shape != (*means.shape, means.shape[1]):
        raise ValueError(
            f"means have shape {means.shape} and precisions {precisions.shape}; allowed: (b, d) and (b, d, d)"
        )
    return means[:, :, None], precisions


def _branch(probability: float, step: Step, means: Array, noise: Array) -> Branch:
    """Return the branch of an affine `step`: its linear part is the step with all means 0, its shift that of 0."""
    shape = noise.shape
    transition = LinearOperator(
        shape,
        matvec=lambda v: step(v.reshape(len(v), -1), np.zeros_like(means)).reshape(v.shape),
        matmat=lambda v: step(v, np.zeros_like(means)),
        dtype=float,
    )
    return Branch(probability, transition, step(np.zeros((shape[0], 1)), means)[:, 0], noise)


def _clocked(
    alone: Sequence[Branch],
    together: Sequence[Branch],
    probability: float | None,
    interval: int | None,
    slow: Array,
) -> Law:
    """Return the law of clients that take `alone` steps but, at random or in every m-th iteration, one `together`."""
    if interval is not None:
        if probability is not None:
            raise ValueError("communication_probability and communication_interval were both given")
        laws = cycle([alone] * (interval - 1) + [together], slow)
        return mixture([1 / interval] * interval, laws)
    p = 1.0 if probability is None else probability
    both = [r._replace(probability=(1 - p) * r.probability) for r in alone]
    both += [r._replace(probability=p * r.probability) for r in together]
    return cycle([both], slow)[0]


def _average(x: Array, weights: Array) -> Array:
    """Return `sum_j w_j x_j` for every client, as `x (b, d, k)` is."""
    return np.broadcast_to(np.tensordot(weights, x, 1), x.shape)


def _client_noise(clients: int, scale: float, common: float, private: float) -> Array:
    """Return `2 gamma T (common 11' + private I)`, `(b, b)`: covariance of one coordinate's noise among clients."""
    return 2 * scale * (common * np.ones((clients, clients)) + private * np.eye(clients))


def _averaged_noise(noise: Array, weights: Array) -> Array:
    return np.full_like(noise, weights @ noise @ weights)


def _consensus(clients: int, d: int) -> Array:
    """Return the basis of the states in which all clients agree: averaging leaves no other slow direction."""
    return np.kron(np.ones((clients, 1)), np.eye(d))


def _subset_weights(clients: int, size: int) -> Array:
    """Return rows of weights, equally likely, with the first two moments of a random subset's `1_S / s`.

    The laws depend on these moments alone: `E w = 1/b` and a covariance proportional to `I - 11'/b`. The b vectors
    `1/b + c (e_k - 1/b)` have them for `c^2 = (b - s) / (s (b - 1))`, in place of all subsets.
    """
    if not 1 <= size <= clients:
        raise ValueError(f"participants is {size}; allowed: 1 to {clients}, the number of clients")
    if size == clients:
        return np.full((1, clients), 1 / clients)
    c = np.sqrt((clients - size) / (size * (clients - 1)))
    weights: Array = (1 - c) / clients + c * np.eye(clients)
    return weights
