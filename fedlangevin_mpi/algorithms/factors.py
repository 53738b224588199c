"""What U-DSVGD and DSVGD share: factors `t_k` that follow the densities of the server's particles.

One agent a global iteration multiplies its factor by the ratio of the KDEs after and before its turn, `q' / q`, so
that `q = p_0 prod_k t_k` (of DSVGD, `p_0 prod_k (t_k / p_0)`) always holds.

Several agents at once (the paper's future work): all start from the same particles, the server adds their damped
moves, and an agent's factor takes its own damped change and its share of what the moves of all amount to besides:

    theta' = theta + rho sum_k (theta^k - theta),   log t_k' = log t_k + rho log(q^k / q) + (1/m) r,
    r = log(q' / q) - rho sum_j log(q^j / q)

The remainder r keeps `q = p_0 prod_k t_k`. A state that does not change then has all `q^k / q` alike and moves that add
up to zero, so no agent moves: the fixed points are those of one agent at a time, for any m and rho. With one particle
r = 0, and the scheme is damped PVI with fixed covariance. It needs the others' particles at every agent: m N d numbers
more come down a turn. `rho = 1/m` averages; larger m with rho = 1 overshoots where agents agree.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from fedlangevin_mpi.algorithms.base import Array
from fedlangevin_mpi.algorithms.serving import Sent, Together
from fedlangevin_mpi.algorithms.stein import Stein


class FactorStein(Together, Stein):
    """SVGD whose agents have factors."""

    kde_bandwidth: Annotated[
        float, Field(gt=0, description="lambda: standard deviation of the Gaussian kernels of a density estimate")
    ] = 0.55

    def needs_uploads(self) -> bool:
        """Whether several agents move at once."""
        return self.at_once

    def sets_of_a_turn(self) -> int:
        """Return how many densities `change` has; of schedule all, as if no agent ever had a turn."""
        return 2 + (self.agents_per_iteration or 0) if self.at_once else 2

    def change(self, received: Array, sent: Sent) -> tuple[Array, Array]:
        """Return the change of a factor, `prod_r q_r^c_r`: particles `(m + 2, N, d)` and powers `(m + 2,)`.

        The first is the density before the turn, the second that after it.
        """
        m = len(sent.uploads)
        after = self.combined(received, sent.uploads)
        powers = np.full(m + 2, -self.damping / m)
        powers[:2] = -1 / m, 1 / m
        powers[2 + sent.place] += self.damping
        if m == 1:  # the agent's own density is no part of it
            return np.stack([received, after]), powers[:2]
        return np.concatenate([np.stack([received, after]), sent.uploads]), powers
