"""Exact stationary laws of the samplers that gossip, on Gaussian potentials `U_i(x) = 1/2 (x - m_i)' H_i (x - m_i)`.

As in `evaluate.exact`, means are `(b, d)`, precisions `H_i` are `(b, d, d)`, and laws are those of the positions
`(x_1, ..., x_b)`, one agent behind the other. With full gradients, a constant step and one mixing matrix each of these
samplers is one linear recursion of its state: the covariance solves a Lyapunov equation (3 s for a state of 400
numbers). Laws exist on disconnected graphs too, of every component for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.linalg import block_diag, orth

from fedlangevin_mpi.evaluate.exact import checked
from fedlangevin_mpi.evaluate.recursion import Array, Branch, Law, cycle, lifted, mixture, restricted

__all__ = ["Gossip", "de_sghmc", "de_sgld", "dgd", "extra_sgld", "gradient_tracking"]


class Gossip(NamedTuple):
    """By which mixing matrices agents gossip, and when; in the other iterations `W = I`.

    The law of a cycle of iterations is the mean over its phases: what the draws of a run have whose `thin` shares no
    factor with the cycle's length.

    Attributes:
        matrices: doubly stochastic, `(b, b)` each.
        order: `cyclic`: the matrices in turn; `random`: a uniformly random one.
        communication_interval: iterations from one exchange to the next.
    """

    matrices: Sequence[Array]
    order: Literal["cyclic", "random"] = "cyclic"
    communication_interval: int = 1


def de_sgld(means: Array, precisions: Array, W: Array | Gossip, step_size: float, *, temperature: float = 1.0) -> Law:
    """Return the law of DE-SGLD (Gürbüzbalaban et al. 2021, eq. (2)): `x' = W x - eta g(x) + sqrt(2 eta T) w`.

    Args:
        means: `(b, d)`.
        precisions: `(b, d, d)`.
        W: the mixing matrix of every iteration, `(b, b)`, or a schedule of several.
        step_size: eta.
        temperature: T, the target is `exp(-sum_i U_i / T)`.

    Raises:
        FedLangevinError: the recursion is unstable.
        ValueError: the shapes do not fit.
    """
    agents = _Agents(means, precisions)
    noise = 2 * step_size * temperature * agents.one

    def iteration(mixing: Array) -> Branch:
        return Branch(1.0, mixing - step_size * agents.curvature, step_size * agents.pull, noise)

    return _mean_over(cycle(agents.phases(iteration, W)))


def dgd(means: Array, precisions: Array, W: Array | Gossip, step_size: float) -> Law:
    """Return where decentralised gradient descent, `x' = W x - eta g(x)`, ends: a point, a law without variance.

    Where W changes it keeps moving, and the covariance is that of its places. See `de_sgld` for arguments and errors.
    """
    return de_sgld(means, precisions, W, step_size, temperature=0.0)


def de_sghmc(
    means: Array,
    precisions: Array,
    W: Array | Gossip,
    step_size: float,
    *,
    friction: float,
    temperature: float = 1.0,
) -> Law:
    """Return the law of the positions of DE-SGHMC (Gürbüzbalaban et al. 2021, section 4); of one agent, of SGHMC.

        v' = v - eta (gamma v + g(x)) + sqrt(2 gamma eta T) w,    x' = W x + eta v'

    Args:
        means: `(b, d)`.
        precisions: `(b, d, d)`.
        W: mixing; see `de_sgld`.
        step_size: eta.
        friction: gamma.
        temperature: T.

    Raises:
        FedLangevinError: the recursion is unstable.
        ValueError: the shapes do not fit.
    """
    agents = _Agents(means, precisions)
    kept = (1 - step_size * friction) * agents.one
    force, pull = step_size * agents.curvature, step_size * agents.pull
    scales = np.array([step_size, 1.0])  # x takes eta times the noise that v takes
    noise = 2 * friction * step_size * temperature * np.kron(np.outer(scales, scales), agents.one)

    def iteration(mixing: Array) -> Branch:
        transition = np.block([[mixing - step_size * force, step_size * kept], [-force, kept]])
        return Branch(1.0, transition, np.concatenate([step_size * pull, pull]), noise)

    return agents.positions(_mean_over(cycle(agents.phases(iteration, W))))


def gradient_tracking(
    means: Array, precisions: Array, W: Array | Gossip, step_size: float, *, temperature: float = 1.0
) -> Law:
    """Return the law of Langevin dynamics with gradient tracking (DIGing: Nedić, Olshevsky, Shi 2017, with noise).

        x' = W x - eta y + sqrt(2 eta T) w,    y' = W y + g(x') - g(x),    y_0 = g(x_0)

    The state solved for is `(x, y - g(x))`, whose second part `z' = W z + (W - I) g(x)` starts at zero. See `de_sgld`
    for arguments and errors.
    """
    agents = _Agents(means, precisions)
    one, curvature, pull = agents.one, agents.curvature, agents.pull
    noise = block_diag(2 * step_size * temperature * one, 0 * one)

    def iteration(mixing: Array) -> Branch:
        of_position = [mixing - step_size * curvature, -step_size * one]
        of_tracker = [(mixing - one) @ curvature, mixing]
        shift = np.concatenate([step_size * pull, (one - mixing) @ pull])
        return Branch(1.0, np.block([of_position, of_tracker]), shift, noise)

    return _law_with_memory(agents, iteration, W)


def extra_sgld(
    means: Array, precisions: Array, W: Array | Gossip, step_size: float, *, temperature: float = 1.0
) -> Law:
    """Return the law of Langevin dynamics with EXTRA's memory (Shi, Ling, Wu, Yin 2015, with noise).

        x' = W x - q - eta g(x) + sqrt(2 eta T) w,    q' = q + (I - W) x / 2,    q_0 = 0

    See `de_sgld` for arguments and errors; W must be symmetric.
    """
    agents = _Agents(means, precisions)
    one = agents.one
    noise = block_diag(2 * step_size * temperature * one, 0 * one)

    def iteration(mixing: Array) -> Branch:
        transition = np.block([[mixing - step_size * agents.curvature, -one], [(one - mixing) / 2, one]])
        return Branch(1.0, transition, np.concatenate([step_size * agents.pull, 0 * agents.pull]), noise)

    return _law_with_memory(agents, iteration, W)


class _Agents:
    """All agents' potentials as one quadratic form of `(x_1, ..., x_b)`, and what acts on such positions.

    Attributes:
        one: the identity of `b d` numbers.
        curvature: `H = blkdiag(H_i)`.
        pull: `H m`: the gradient is `H x - H m`.
    """

    def __init__(self, means: Array, precisions: Array) -> None:
        columns, blocks = checked(means, precisions)
        self._count, self._dim, _ = columns.shape
        self.one: Array = np.eye(self._count * self._dim)
        self.curvature: Array = block_diag(*blocks)
        self.pull: Array = (blocks @ columns).ravel()

    def mixings(self, W: Array | Gossip) -> list[Array]:
        """Return the mixing matrices as they act on positions, `W (x) I_d`."""
        matrices = W.matrices if isinstance(W, Gossip) else [W]
        allowed = (self._count, self._count)
        for matrix in matrices:
            if np.shape(matrix) != allowed:
                raise ValueError(f"W has shape {np.shape(matrix)} for {self._count} agents; allowed: {allowed}")
        return [np.kron(matrix, np.eye(self._dim)) for matrix in matrices]

    def phases(self, iteration: Callable[[Array], Branch], W: Array | Gossip) -> list[list[Branch]]:
        """Return the branches of each iteration of a cycle, given the branch of a mixing."""
        gossiping = [iteration(mixing) for mixing in self.mixings(W)]
        if not isinstance(W, Gossip):
            return [gossiping]
        alone = [[iteration(self.one)]] * (W.communication_interval - 1)
        if W.order == "random":
            return [*alone, [branch._replace(probability=1 / len(gossiping)) for branch in gossiping]]
        return [phase for branch in gossiping for phase in [*alone, [branch]]]

    def positions(self, law: Law) -> Law:
        """Return the law of the positions, the first part of a state."""
        size = len(self.one)
        return Law(law.mean[:size], law.covariance[:size, :size])


def _law_with_memory(agents: _Agents, iteration: Callable[[Array], Branch], W: Array | Gossip) -> Law:
    """Return the law of the positions of a state `(x, q)` whose memory `q` stays in the ranges of `I - W`.

    Sums of `q` over a component of the graph are conserved, so that the whole state has no stationary law.
    """
    ranges = np.hstack([agents.one - mixing for mixing in agents.mixings(W)])
    basis = block_diag(agents.one, orth(ranges))
    phases = [[restricted(branch, basis) for branch in branches] for branches in agents.phases(iteration, W)]
    return agents.positions(lifted(_mean_over(cycle(phases)), basis))


def _mean_over(laws: list[Law]) -> Law:
    return mixture([1 / len(laws)] * len(laws), laws)
