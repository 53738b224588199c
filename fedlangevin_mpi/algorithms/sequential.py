"""FedAvg and FedSGD in their one-client-a-round form: the point estimates that particle methods are compared with.

The scheduled agent k takes L gradient steps on its own potential from the server's parameters, and replaces them:

    theta <- theta - gamma grad( U0 / K + L_k / alpha )

FedSGD is one step. Nothing is averaged, so with a constant step the parameters end up going round between the agents'
optima. FedAvg with an average over all clients is `fed_avg`.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-efficient learning of deep networks from decentralized
data, AISTATS 2017, in the form of Kassab, Simeone 2020 (`serving`), appendix C.1.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fedlangevin_mpi.algorithms.base import Array
from fedlangevin_mpi.algorithms.serving import Target, Turn
from fedlangevin_mpi.algorithms.travelling import Travelling, Weights


class SequentialDescent(Travelling):
    """What the two share."""

    particles: Annotated[int, Field(ge=1, description="replicas with minibatches of their own")] = 1

    def work(self, kernel: Any, memory: Any, target: Target, received: Array, turn: Turn) -> Array:
        """Return the parameters after the local gradient steps."""
        return self.moved(kernel, target, received, turn, Weights(1 / turn.agents, 1 / self.temperature, 0.0))


class SequentialFedAvg(SequentialDescent):
    """FedAvg, one client a round: L gradient steps, no noise and no average (Kassab, Simeone 2020)."""

    summary: ClassVar[str] = "FedAvg one client a round: local gradient steps of each client in turn; a point estimate"

    name: Literal["sequential_fed_avg"] = "sequential_fed_avg"


class FedSgd(SequentialDescent):
    """FedSGD, one client a round: a single gradient step."""

    summary: ClassVar[str] = "FedSGD one client a round: a gradient step of each client in turn; a point estimate"

    name: Literal["fed_sgd"] = "fed_sgd"
    local_iterations: Literal[1] = 1
