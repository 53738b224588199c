"""Algorithms with a server: it holds the state, and agents download, work on their own data and upload in turn.

The server's state is a few rows of numbers: particles, chains, or the natural parameters of a Gaussian. In a global
iteration the scheduled agents take rows, work on them with their own data alone, and send them back. A client is an
agent; every agent's own loss `L_k` is the negative log likelihood of its rows, without a share of the prior, and the
target is the generalised posterior

    q(theta) ∝ p_0(theta) exp(-(1/alpha) sum_k L_k(theta)).

Kassab, Simeone: Federated generalized Bayesian learning via distributed Stein variational gradient descent, 2020, eqs.
(1)-(3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from fedlangevin_mpi.algorithms.base import Array, Communicates, Method
from fedlangevin_mpi.algorithms.schedule import steps_at
from fedlangevin_mpi.generic import Everything, Rows

Schedule = Literal["round_robin", "random", "all", "parallel", "permutation"]


class Target(NamedTuple):
    """What one agent knows of the posterior.

    Attributes:
        likelihood: data whose potential is `L_k`, for `gradient`; one client, prior weight 0.
        prior: data whose potential is the whole `U0 = -log p_0`, for `gradient`; one client without rows.
        quadratic: `m (d,)` and `H (d, d)` where `L_k` is `1/2 (theta - m)' H (theta - m)`; None where it is not.
        normal_prior: mean `(d,)` and precision of a Gaussian prior, `(d, d)` or its diagonal `(d,)`; None where it is
            none.
    """

    likelihood: Any
    prior: Any
    quadratic: tuple[Array, Array] | None
    normal_prior: tuple[Array, Array] | None


class Deal(NamedTuple):
    """Who works on what in a global iteration: `rows` of the server's state go to `agent`."""

    agent: int
    rows: Array


class Turn(NamedTuple):
    """What an agent's work in a global iteration needs, drawn before.

    Attributes:
        iteration: i, 0-based.
        agent: k.
        agents: K, how many there are.
        steps: `(L,)` step sizes of the local iterations.
        batch: the minibatch of every local iteration, or everything; one client, chains are the `positions`.
        noise: `(L, n, d)` standard normals, n as `normals` says; n = 0 where the algorithm takes none. Where the
            server's state is natural parameters, an iterator over the first axis.
    """

    iteration: int
    agent: int
    agents: int
    steps: Array
    batch: Rows | Everything
    noise: Any


@dataclass
class NoMemory:
    """The memory of an agent that keeps nothing from turn to turn."""


class Sent(NamedTuple):
    """What the agents of a global iteration sent, as an agent among them learns it.

    Attributes:
        uploads: `(m, n, columns)` in the order of the deals; m = 1 where agents need their own alone.
        place: of the agent's own among them.
    """

    uploads: Array
    place: int

    @property
    def own(self) -> Array:
        """What the agent itself sent."""
        result: Array = self.uploads[self.place]
        return result


class Serving(Method):
    """An algorithm with a server. A subclass in a file of its own is one choice of `algorithm.name`.

    A subclass gives `served`, `agent` and `work`, and where it needs them the others. `kernel`, where there is one, is
    compiled by the compiled engine; `work` and `settle` get it in that form and call it with arguments of the types
    that `example` shows.
    """

    communicates: ClassVar[Communicates] = "server"
    kernel: ClassVar[Callable[..., None] | None] = None
    schedules: ClassVar[tuple[Schedule, ...]] = ("round_robin", "random")
    """What `schedule` may be."""

    shared_rows: ClassVar[bool] = True
    """Whether all particles see the same minibatch."""

    grows: ClassVar[bool] = False
    """Whether what an agent remembers grows with its turns."""

    natural: ClassVar[bool] = False
    """Whether the server's state is natural parameters, stored beside draws from the density they make."""

    shares: ClassVar[bool] = False
    """Whether agents tell each other something before iteration 0: `shared`, whose sum all `learn`."""

    coins: ClassVar[Literal["none", "shared"]] = "none"
    """What the draws' file says of the dependence between chains: `shared` where they are dealt together."""

    particles: Annotated[int, Field(ge=1, description="N: particles, chains, or draws of q that are stored")] = 20
    global_iterations: Annotated[int, Field(ge=1, description="I: each stores one draw")]
    local_iterations: Annotated[int, Field(ge=1, description="L: of a scheduled agent in a global iteration")] = 1
    temperature: Annotated[
        float, Field(gt=0, description="alpha of generalised Bayes: the target is p_0 exp(-sum_k L_k / alpha)")
    ] = 1.0
    schedule: Annotated[
        Schedule,
        Field(
            description="round_robin: agents in turn; random: a uniformly random one; all, parallel: all agents, or "
            "agents_per_iteration of them in turn, at once; permutation: chains are dealt to all agents at random"
        ),
    ] = "round_robin"

    def needs_uploads(self) -> bool:
        """Whether an agent needs what the others of its global iteration sent to bring its memory up to date."""
        return False

    def local_steps(self, agent: int, agents: int) -> int:
        """Return how many local iterations an agent does in its turn."""
        return self.local_iterations

    def steps(self, iteration: int, count: int) -> Array:
        """Return `(count,)` step sizes of a global iteration; schedules run over the local iterations i L + l."""
        first = iteration * self.local_iterations
        return steps_at(self.step_size, np.arange(first, first + count))

    def positions(self, rows: int) -> int:
        """Return at how many positions a local iteration takes gradients, where so many rows are dealt."""
        return rows

    def normals(self, rows: int) -> int:
        """Return how many normal vectors a local iteration takes for so many rows."""
        return 0

    def deals(self, iteration: int, agents: int, rows: int, generator: np.random.Generator) -> list[Deal]:
        """Return who works on what in a global iteration: the agent whose turn it is, on all rows.

        Args:
            iteration: i, 0-based.
            agents: K.
            rows: of the server's state.
            generator: of this iteration, the same on all ranks.
        """
        agent = int(generator.integers(agents)) if self.schedule == "random" else iteration % agents
        return [Deal(agent, np.arange(rows))]

    def problem(self, agents: int) -> str | None:
        """Return what about the hyperparameters does not fit so many agents, or None."""
        return None

    def refusal(self, dim: int, target: Target, start: Array) -> str | None:
        """Return why this algorithm cannot work with a model or a start, or None."""
        return None

    def example(self, start: Array, target: Target, batch: Rows | Everything) -> tuple[Any, ...]:
        """Return arguments of the types with which `kernel` is called, for no local iteration."""
        raise NotImplementedError

    def served(self, start: Array, target: Target) -> Array:
        """Return the server's state at iteration 0: the initial particles, unless a subclass says otherwise."""
        return start.copy()

    def agent(self, start: Array, target: Target) -> Any:
        """Return an agent's memory at iteration 0, a dataclass of arrays."""
        raise NotImplementedError

    def shared(self, memory: Any) -> Array:
        """Return what an agent tells all others before iteration 0, rows of d numbers."""
        raise NotImplementedError

    def learn(self, memory: Any, total: Array) -> None:
        """Take the sum of what all agents told."""
        raise NotImplementedError

    def saved(self, memory: Any, most_turns: int) -> dict[str, Array]:
        """Return the arrays of an agent's memory, of the same shapes for all agents.

        Args:
            memory: of the agent.
            most_turns: that an agent had; 0 unless memories grow.
        """
        return {field.name: getattr(memory, field.name) for field in fields(memory)}

    def restore(self, memory: Any, arrays: Mapping[str, Array], turns: int) -> None:
        """Give a memory what `saved` returned, of an agent that had so many turns (0 unless memories grow)."""
        for name, array in arrays.items():
            setattr(memory, name, array)

    def work(self, kernel: Any, memory: Any, target: Target, received: Array, turn: Turn) -> Array:
        """Return what an agent sends back for the rows it received."""
        raise NotImplementedError

    def settle(self, kernel: Any, memory: Any, target: Target, received: Array, sent: Sent, turn: Turn) -> None:
        """Bring an agent's memory up to date, after its upload: nobody waits for it."""

    def combine(self, served: Array, deals: Sequence[Deal], uploads: Sequence[Array]) -> Array:
        """Return the server's next state: the dealt rows are replaced."""
        after = served.copy()
        for deal, upload in zip(deals, uploads, strict=True):
            after[deal.rows] = upload
        return after

    def draw(self, served: Array, normals: Array) -> Array:
        """Return `(N, d)` draws from the density that natural parameters make, given standard normals `(N, d)`."""
        raise NotImplementedError

    def gradients(self, target: Target, steps: int, rows: int) -> int:
        """Return the evaluations of `L_k`'s gradient in a turn of so many local iterations on so many rows."""
        return steps * self.positions(rows)

    @model_validator(mode="after")
    def _known_schedule(self) -> Self:
        if self.schedule not in self.schedules:
            raise ValueError(f"schedule: found {self.schedule!r}; allowed: {', '.join(self.schedules)} for {self.name}")
        return self


class Together(Serving):
    """An algorithm of which several agents can work in one global iteration, from the same state."""

    schedules: ClassVar[tuple[Schedule, ...]] = ("round_robin", "random", "all", "parallel")

    damping: Annotated[
        float, Field(gt=0, le=1, description="rho_d: share of an agent's change that is taken; 1 is undamped")
    ] = 1.0
    agents_per_iteration: Annotated[
        int | None, Field(ge=1, description="m, of schedule parallel: how many agents work at once")
    ] = None

    @model_validator(mode="after")
    def _how_many(self) -> Self:
        if (self.schedule == "parallel") != (self.agents_per_iteration is not None):
            found = f"{self.agents_per_iteration} with schedule {self.schedule}"
            raise ValueError(
                f"agents_per_iteration: found {found}; allowed: a number with schedule parallel, and only then"
            )
        return self

    def problem(self, agents: int) -> str | None:
        """Return what is wrong with `agents_per_iteration`."""
        if self.agents_per_iteration is None or self.agents_per_iteration <= agents:
            return None
        return (
            f"algorithm.agents_per_iteration: found {self.agents_per_iteration}; allowed: at most {agents}, all clients"
        )

    @property
    def at_once(self) -> bool:
        """Whether several agents work in one global iteration."""
        return self.schedule in ("all", "parallel")

    def deals(self, iteration: int, agents: int, rows: int, generator: np.random.Generator) -> list[Deal]:
        """Return who works in a global iteration, everybody on all rows."""
        if not self.at_once:
            return super().deals(iteration, agents, rows, generator)
        count = agents if self.agents_per_iteration is None else self.agents_per_iteration
        return [Deal((iteration * count + j) % agents, np.arange(rows)) for j in range(count)]

    def combine(self, served: Array, deals: Sequence[Deal], uploads: Sequence[Array]) -> Array:
        """Return the state after the agents' damped changes."""
        return self.combined(served, np.stack(uploads))

    def combined(self, served: Array, uploads: Array) -> Array:
        """Return `served + rho_d sum_k (upload_k - served)`."""
        if len(uploads) == 1 and self.damping == 1:
            only: Array = uploads[0]
            return only
        moved: Array = served + self.damping * (uploads - served).sum(0)
        return moved
