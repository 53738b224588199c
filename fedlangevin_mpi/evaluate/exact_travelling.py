"""Exact laws of chains that travel between agents, DSGLD and FSGLD, on Gaussian likelihoods without a prior.

A round takes a chain to agent s with probability 1/K and moves it there by tau_s steps, each a linear map with noise;
the state at the end of a round is a linear random recursion with K branches (`evaluate.recursion`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedlangevin_mpi.evaluate.exact import checked
from fedlangevin_mpi.evaluate.recursion import Array, Branch, Law, stationary


def dsgld(
    means: Array, precisions: Array, step_size: float, local_steps: Sequence[int], conducive: bool = False
) -> Law:
    """Return the law of a chain after a round of DSGLD (Ahn et al. 2014), dealt at random; full gradients.

    Args:
        means: `(K, d)` of the likelihoods `exp(-1/2 (x - m_s)' H_s (x - m_s))`.
        precisions: `(K, d, d)`.
        step_size: gamma.
        local_steps: `tau_s` of every agent; its share of all steps is `f_s = tau_s / sum tau`.
        conducive: whether conducive gradients with exact surrogates are added: FSGLD (El Mekkaoui et al. 2021).

    Raises:
        FedLangevinError: it is unstable.
    """
    means, precisions = checked(means, precisions)
    linear = (precisions @ means)[..., 0]
    branches = []
    for s, steps in enumerate(local_steps):
        share = steps / sum(local_steps)
        curvature, pull = precisions[s] / share, linear[s] / share
        if conducive:  # + grad log q - grad log q_s / f_s
            curvature, pull = precisions.sum(0), linear.sum(0)
        branches.append(_steps(curvature, pull, step_size, steps, 1 / len(local_steps)))
    return stationary(branches)


def _steps(curvature: Array, pull: Array, step_size: float, steps: int, probability: float) -> Branch:
    """Return so many steps of Langevin dynamics with the drift `pull - curvature x`, as one branch."""
    identity = np.eye(len(pull))
    once = identity - step_size * curvature
    transition, shift, noise = identity, np.zeros_like(pull), np.zeros_like(curvature)
    for _ in range(steps):
        transition, shift = once @ transition, once @ shift + step_size * pull
        noise = once @ noise @ once.T + 2 * step_size * identity
    return Branch(probability, transition, shift, noise)
