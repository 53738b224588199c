"""Exact stationary laws of the samplers that gossip, on Gaussian potentials `U_i(x) = 1/2 (x - m_i)' H_i (x - m_i)`.

As in `evaluate.exact`, means are `(b, d)`, precisions `H_i` are `(b, d, d)`, and laws are those of the positions
`(x_1, ..., x_b)`, one agent behind the other. With full gradients and a constant step each of these samplers is one
linear recursion of its state, so that the covariance solves one Lyapunov equation: 3 s for a state of 400 numbers.

A mixing matrix `W (b, b)` is doubly stochastic. Where graphs take turns it is `(m, b, b)`; in both cases, with a
`communication_interval` of n, agents mix in every n-th iteration only, and their own `x_i` stands in the others for
`sum_j W_ij x_j`. The law of such a cycle is the mean over its phases: what the draws of a run have whose `thin` shares
no factor with its length. Laws exist on disconnected graphs too, of every component for itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import block_diag, orth

from fedlangevin_mpi.evaluate.exact import checked
from fedlangevin_mpi.evaluate.recursion import Array, Branch, Law, cycle, lifted, mixture, restricted

__all__ = ["de_sghmc", "de_sgld", "dgd", "extra_sgld", "gradient_tracking"]


def de_sgld(
    means: Array,
    precisions: Array,
    W: Array,
    step_size: float,
    *,
    communication_interval: int = 1,
    temperature: float = 1.0,
) -> Law:
    """Return the law of DE-SGLD (Gürbüzbalaban et al. 2021, eq. (2)): `x' = W x - eta g(x) + sqrt(2 eta T) w`.

    Args:
        means: `(b, d)`.
        precisions: `(b, d, d)`.
        W: mixing matrix `(b, b)`, or several that take turns `(m, b, b)`.
        step_size: eta.
        communication_interval: iterations from one mixing to the next.
        temperature: T, the target is `exp(-sum_i U_i / T)`.

    Raises:
        FedLangevinError: the recursion is unstable.
        ValueError: the shapes do not fit.
    """
    potentials = _Potentials(means, precisions)
    noise = 2 * step_size * temperature * np.eye(potentials.size)

    def iteration(mixing: Array) -> Branch:
        transition = mixing - step_size * potentials.curvature
        return Branch(1.0, transition, step_size * potentials.pull, noise)

    return _law(iteration, potentials.mixings(W, communication_interval))


def dgd(means: Array, precisions: Array, W: Array, step_size: float, *, communication_interval: int = 1) -> Law:
    """Return where decentralised gradient descent, `x' = W x - eta g(x)`, stays: a law without variance.

    Where several iterations make a cycle, the covariance is that of its points. See `de_sgld` for arguments and errors.
    """
    return de_sgld(means, precisions, W, step_size, communication_interval=communication_interval, temperature=0.0)


def de_sghmc(
    means: Array,
    precisions: Array,
    W: Array,
    step_size: float,
    *,
    friction: float,
    communication_interval: int = 1,
    temperature: float = 1.0,
) -> Law:
    """Return the law of DE-SGHMC's positions (Gürbüzbalaban et al. 2021, section 4); of one agent, SGHMC's.

        v' = v - eta (gamma v + g(x)) + sqrt(2 gamma eta T) w,    x' = W x + eta v'

    Args:
        means: `(b, d)`.
        precisions: `(b, d, d)`.
        W: mixing matrix; see `de_sgld`.
        step_size: eta, a time: its square is comparable to DE-SGLD's.
        friction: gamma, an inverse time.
        communication_interval: iterations from one mixing to the next.
        temperature: T.

    Raises:
        FedLangevinError: the recursion is unstable.
        ValueError: the shapes do not fit.
    """
    potentials = _Potentials(means, precisions)
    kept = (1 - step_size * friction) * np.eye(potentials.size)
    force, pull = step_size * potentials.curvature, step_size * potentials.pull
    of_velocity = 2 * friction * step_size * temperature
    factors = np.array([[step_size**2, step_size], [step_size, 1.0]])  # x takes eta times the noise that v takes
    noise = of_velocity * np.kron(factors, np.eye(potentials.size))

    def iteration(mixing: Array) -> Branch:
        transition = np.block([[mixing - step_size * force, step_size * kept], [-force, kept]])
        return Branch(1.0, transition, np.concatenate([step_size * pull, pull]), noise)

    return _positions(_law(iteration, potentials.mixings(W, communication_interval)), potentials.size)


def gradient_tracking(
    means: Array,
    precisions: Array,
    W: Array,
    step_size: float,
    *,
    communication_interval: int = 1,
    temperature: float = 1.0,
) -> Law:
    """Return the law of Langevin dynamics with gradient tracking (DIGing: Nedic, Olshevsky, Shi 2017, with noise).

        x' = W x - eta y + sqrt(2 eta T) w,    y' = W y + g(x') - g(x),    y_0 = g(x_0)

    The state solved for is `(x, y - g(x))`, whose second part starts at zero and never leaves the range of `I - W`.
    See `de_sgld` for arguments and errors.
    """
    potentials = _Potentials(means, precisions)
    curvature, pull, one = potentials.curvature, potentials.pull, np.eye(potentials.size)
    noise = block_diag(2 * step_size * temperature * one, 0 * one)

    def iteration(mixing: Array) -> Branch:
        transition = np.block(
            [[mixing - step_size * curvature, -step_size * one], [(mixing - one) @ curvature, mixing]]
        )
        return Branch(1.0, transition, np.concatenate([step_size * pull, (one - mixing) @ pull]), noise)

    return _law_with_memory(iteration, potentials.mixings(W, communication_interval))


def extra_sgld(
    means: Array,
    precisions: Array,
    W: Array,
    step_size: float,
    *,
    communication_interval: int = 1,
    temperature: float = 1.0,
) -> Law:
    """Return the law of Langevin dynamics with EXTRA's memory (Shi, Ling, Wu, Yin 2015, with noise), `V = (W + I) / 2`.

        x' = W x - q - eta g(x) + sqrt(2 eta T) w,    q' = q + (V - W) x,    q_0 = 0

    See `de_sgld` for arguments and errors.
    """
    potentials = _Potentials(means, precisions)
    one = np.eye(potentials.size)
    noise = block_diag(2 * step_size * temperature * one, 0 * one)

    def iteration(mixing: Array) -> Branch:
        transition = np.block([[mixing - step_size * potentials.curvature, -one], [(one - mixing) / 2, one]])
        return Branch(1.0, transition, np.concatenate([step_size * potentials.pull, np.zeros(len(one))]), noise)

    return _law_with_memory(iteration, potentials.mixings(W, communication_interval))


class _Potentials:
    """The potentials of all agents as one quadratic form of `(x_1, ..., x_b)`.

    Attributes:
        size: `b d`.
        curvature: `H = blkdiag(H_i)`, `(b d, b d)`.
        pull: `H m`, `(b d,)`: the gradient is `H x - H m`.
    """

    def __init__(self, means: Array, precisions: Array) -> None:
        columns, blocks = checked(means, precisions)
        self._agents, self._dim, _ = columns.shape
        self.size = self._agents * self._dim
        self.curvature: Array = block_diag(*blocks)
        self.pull: Array = (blocks @ columns).ravel()

    def mixings(self, W: Array, interval: int) -> list[Array]:
        """Return what every iteration of a cycle mixes positions with, `(b d, b d)` each."""
        graphs = np.asarray(W, float)
        if graphs.ndim not in (2, 3) or graphs.shape[-2:] != (self._agents, self._agents):
            b = self._agents
            raise ValueError(f"W has shape {graphs.shape} for {b} agents; allowed: ({b}, {b}) or (m, {b}, {b})")
        alone = [np.eye(self.size)] * (interval - 1)
        together = [np.kron(graph, np.eye(self._dim)) for graph in graphs.reshape(-1, self._agents, self._agents)]
        return [mixing for graph in together for mixing in [*alone, graph]]


def _law(iteration: Callable[[Array], Branch], mixings: list[Array]) -> Law:
    return _mean_over(cycle([[iteration(mixing)] for mixing in mixings]))


def _law_with_memory(iteration: Callable[[Array], Branch], mixings: list[Array]) -> Law:
    """Return the law of the positions of a state `(x, q)` whose memory `q` stays in the range of `I - W`.

    Sums of `q` over a component of the graph are conserved, so that the whole state has no stationary law.
    """
    one = np.eye(len(mixings[0]))
    basis = block_diag(one, orth(np.hstack([one - mixing for mixing in mixings])))
    laws = cycle([[restricted(iteration(mixing), basis)] for mixing in mixings])
    return _positions(lifted(_mean_over(laws), basis), len(one))


def _mean_over(laws: list[Law]) -> Law:
    return mixture([1 / len(laws)] * len(laws), laws)


def _positions(law: Law, size: int) -> Law:
    return Law(law.mean[:size], law.covariance[:size, :size])
