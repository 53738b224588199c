"""The protocol of an algorithm: hyperparameters, state, the randomness of a block, and the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fedlangevin_mpi.algorithms.schedule import StepSize, steps_at

Array = np.ndarray[Any, np.dtype[Any]]


class Streams(Protocol):
    """What an algorithm draws a block's randomness from (`runtime.streams` keeps the promise).

    `iterations` are the 0-based numbers of the block's iterations, `clients` the clients of this rank, `total` all of
    them; `dtype` is the run's. Shapes use T = len(iterations), C = len(clients), K = chains.
    """

    iterations: Array
    clients: range
    total: int
    chains: int
    dtype: np.dtype[Any]
    mixings: int
    """Mixing matrices that gossip can use; 0 without a topology."""

    def noise(self) -> Array:
        """Return private standard normals `(T, C, K, dim)`."""

    def common_noise(self) -> Array:
        """Return standard normals `(T, K, dim)` that all clients share."""

    def communication(self, probability: float) -> Array:
        """Return the communication coins, `(T, K)` bool: one for all chains, or one a chain, as the run says."""

    def reference(self, probability: float) -> Array:
        """Return the reference coins, `(T, K)` bool, independent of the communication coins."""

    def participants(self, size: int) -> Array:
        """Return uniformly random subsets of `size` of all clients, `(T, total)` bool."""

    def scheduled(self, choices: int) -> Array:
        """Return uniformly random numbers below `choices`, `(T,)`, that all clients and chains share."""


class Traffic(NamedTuple):
    """What a block's exchanges carry, as the papers count it: what leaves a client.

    Attributes:
        exchanges: `(T,)` exchanges of every iteration.
        positions: `(T,)` vectors of length `dim` in a sender's messages of it, over all exchanges and chains; None: one
            a chain in every exchange.
        senders: clients that send in an exchange; None: all, or every client to each of its neighbours.
        mixing: `(T,)` of gossip, the number of the mixing matrix whose edges the exchanges of an iteration use.
    """

    exchanges: Array
    positions: Array | None
    senders: int | None = None
    mixing: Array | None = None


Communicates = Literal["average", "gossip", "server", "never"]
"""Who clients talk to: all take a mean, each its neighbours' weighted sum, a server that holds the state, or nobody."""


class Method(BaseModel):
    """What can be the `algorithm` of a config: an `Algorithm` that runs in blocks, or a `Serving` with a server."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    summary: ClassVar[str]
    """One line for `fedlangevin list algorithms`."""

    communicates: ClassVar[Communicates] = "average"

    keeps: ClassVar[Literal["every", "final"]] = "every"
    """Which states after warmup are draws where the config has no `thin`."""

    name: str
    step_size: StepSize
    batch_size: Annotated[
        int | None, Field(ge=1, description="rows of a minibatch, n_i = min(batch_size, N_i); absent: full gradients")
    ] = None

    def notes(self) -> list[str]:
        """Return what a user should be told about these hyperparameters before the run."""
        return []


class Algorithm(Method):
    """A sampler that runs in blocks. A subclass in a file of its own is one choice of `algorithm.name`.

    A subclass gives its hyperparameters as fields, `kernel` (and `begin`, where the state needs a gradient or an
    exchange before iteration 0), `state` and `draws`. The kernel is called as
    `kernel(theta, state, draws, data, batch, channel, trace, slot, start, stop)`; it draws nothing, opens nothing
    and knows no rank:

    - `theta (clients_here, chains, dim)` is updated in place, and so are the arrays of `state`;
    - `draws` is what `draws` returned for the block, indexed by the iteration's place `k` in the block;
    - `gradient(theta, data, batch, k)` and `exchange(theta, channel, weights[, chains])` are its two words;
    - after iteration `k` the position is kept by `trace[slot[k]] = theta` where `slot[k] >= 0`;
    - it runs the iterations `start <= k < stop` of the block.
    """

    kernel: ClassVar[Callable[..., None]]
    begin: ClassVar[Callable[..., None] | None] = None
    """Called once before iteration 0 as `begin(theta, state, draws, data, channel)`."""

    gradients_per_iteration: ClassVar[int] = 1
    """Evaluations of a client's (minibatch) gradient in an iteration."""

    def state(self, theta: Array) -> NamedTuple:
        """Return the algorithm's arrays besides `theta`, at iteration 0: the clients here are the first axis of each.

        They are all that a checkpoint keeps besides `theta`, so nothing else may be remembered between iterations.
        """
        return NoState(theta[:, :0].copy())

    def draws(self, streams: Streams) -> Any:
        """Return all randomness and all step sizes of a block, as a NamedTuple of arrays with a leading axis T."""
        raise NotImplementedError

    def traffic(self, draws: Any) -> Traffic:
        """Return what the exchanges of a block carry."""
        raise NotImplementedError

    def full_gradients(self, draws: Any, start: int, stop: int) -> int:
        """Return how many full gradients a client evaluates in `start <= k < stop`, besides the iterations' own."""
        return 0


class NoState(NamedTuple):
    """The state of an algorithm that has only its position: a field, which Numba needs, of no numbers."""

    unused: Array


class Steps(NamedTuple):
    """Step sizes of a block and the scale of its noise.

    Attributes:
        step: `(T,)` step size.
        scale: `(T,)` factor of a standard normal, `sqrt(2 step temperature)`.
    """

    step: Array
    scale: Array


def langevin_steps(streams: Streams, step_size: Any, temperature: float) -> Steps:
    """Return a block's step sizes with the noise that makes `exp(-U / temperature)` the target."""
    step = steps_at(step_size, streams.iterations)
    return Steps(step.astype(streams.dtype), np.sqrt(2 * step * temperature).astype(streams.dtype))


Temperature = Annotated[
    float, Field(gt=0, description="the target is exp(-U / temperature); 1 is the posterior, below 1 a cold one")
]
