"""DSGLD, distributed stochastic gradient Langevin dynamics: chains travel from agent to agent, data stay.

In a round (a global iteration) every chain is dealt to an agent s, which moves it by tau_s steps

    theta <- theta - gamma ( grad U0 + (1 / (alpha f_s)) g_s(theta) ) + sqrt(2 gamma) Z

with `g_s` the (minibatch) gradient of `L_s` and f_s the share of all steps that a chain does at agent s, so that the
drift is unbiased over a round (`gamma` here is the papers' `epsilon / 2`). Chains and agents are dealt by a random
permutation; then `f_s = tau_s / sum_r tau_r`. Where agents are of unequal speed, `delays` balances a round: tau_s is
`local_iterations` for the fastest, and less for others in the ratio of their delays.

Within its tau steps a chain follows one agent's data alone, and the law is biased, the more so the larger gamma tau
and the farther apart the agents: FSGLD (`fsgld`) corrects that.

Ahn, Shahbaba, Welling: Distributed stochastic gradient MCMC, ICML 2014.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedlangevin_mpi.algorithms.base import Array
from fedlangevin_mpi.algorithms.serving import Deal, Schedule, Target, Turn
from fedlangevin_mpi.algorithms.travelling import Travelling, Weights


class TravellingChains(Travelling):
    """What DSGLD and FSGLD share: who gets which chains, and for how many steps."""

    schedules: ClassVar[tuple[Schedule, ...]] = ("permutation", "round_robin", "random")
    coins: ClassVar[Literal["none", "shared"]] = "shared"

    schedule: Annotated[
        Schedule,
        Field(
            description="permutation: chains are dealt to all agents at random, as many to each; round_robin, random: "
            "all chains go to one agent, in turn or at random"
        ),
    ] = "permutation"
    delays: Annotated[
        tuple[Annotated[float, Field(gt=0)], ...] | None,
        Field(description="what a local step takes at every client, in any unit; absent: the same"),
    ] = None

    def local_steps(self, agent: int, agents: int) -> int:
        """Return tau_s."""
        if self.delays is None:
            return self.local_iterations
        return max(1, round(self.local_iterations * min(self.delays) / self.delays[agent]))

    def share(self, agent: int, agents: int) -> float:
        """Return f_s."""
        return self.local_steps(agent, agents) / sum(self.local_steps(other, agents) for other in range(agents))

    def problem(self, agents: int) -> str | None:
        """Return what is wrong with `delays`."""
        if self.delays is None or len(self.delays) == agents:
            return None
        return f"algorithm.delays: found {len(self.delays)} numbers; allowed: one a client, {agents}"

    def deals(self, iteration: int, agents: int, rows: int, generator: np.random.Generator) -> list[Deal]:
        """Return the chains of every agent that has some."""
        if self.schedule != "permutation":
            return super().deals(iteration, agents, rows, generator)
        order, chains = generator.permutation(agents), generator.permutation(rows)
        dealt = {int(agent): chains[j::agents] for j, agent in enumerate(order)}
        return [Deal(agent, np.sort(mine)) for agent, mine in sorted(dealt.items()) if len(mine)]

    def normals(self, rows: int) -> int:
        """Return one vector a chain."""
        return rows

    def weights(self, turn: Turn) -> Weights:
        """Return the weights of prior, likelihood and noise."""
        return Weights(1.0, 1 / (self.temperature * self.share(turn.agent, turn.agents)), 1.0)


class Dsgld(TravellingChains):
    """DSGLD: chains travel between agents, each of which moves them on its own data (Ahn et al. 2014)."""

    summary: ClassVar[str] = "distributed SGLD: chains travel from client to client, which move them on their own data"

    name: Literal["dsgld"] = "dsgld"

    def work(self, kernel: Any, memory: Any, target: Target, received: Array, turn: Turn) -> Array:
        """Return the chains after tau_s steps."""
        return self.moved(kernel, target, received, turn, self.weights(turn))
