"""VR-FALD*, federated averaging Langevin dynamics with control variates against variance and client drift.

All clients share a reference point `Y` and a shift `C = (1/b) sum_i grad U_i(Y)` of full gradients, `Y_0 = mean x_0`:

    g_i  = gradS_i(x_i) - gradS_i(Y) + C          the same minibatch S at both points, the old Y and C
    y_i  = x_i - gamma g_i + sqrt(2 gamma) ( sqrt(tau / b) Z + sqrt(1 - tau) Z_i )
    x_i' = mean_j y_j   if B ~ Bernoulli(p_c),   else y_i
    Y'   = mean_i x_i,  C' = mean_i grad U_i(Y')   with probability q_c, from the positions before the step

On Gaussian potentials its stationary mean is the posterior mean for any `p_c`. One client and `p_c = 1` give SVRG-LD
(Dubey et al. 2016; Chatterji et al. 2018).

Plassier, Moulines, Durmus: Federated averaging Langevin dynamics: toward a unified theory and new algorithms,
AISTATS 2023, eqs. (15)-(18). The analysis wants `q_c <= p_c`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from fedlangevin_mpi.algorithms.averaging import Averaging, equal_weights
from fedlangevin_mpi.algorithms.base import Array, Streams, Temperature, Traffic, langevin_steps
from fedlangevin_mpi.algorithms.fald import NoiseCorrelation, correlated_noise
from fedlangevin_mpi.algorithms.langevin import langevin_update
from fedlangevin_mpi.generic import Everything, exchange, gradient


class VrFaldState(NamedTuple):
    """The control variates, equal on all clients.

    Attributes:
        reference: `(clients_here, chains, dim)` reference point Y.
        shift: `(clients_here, chains, dim)` shift C.
    """

    reference: Array
    shift: Array


class VrFaldDraws(NamedTuple):
    """The randomness of a block of T iterations.

    Attributes:
        step: `(T,)` step size gamma.
        scale: `(T,)` `sqrt(2 gamma temperature)`.
        noise: `(T, clients_here, chains, dim)` `sqrt(tau/b) Z + sqrt(1-tau) Z_i`.
        communicate: `(T, chains)` bool, the chains that take the average.
        refresh: `(T, chains)` bool, the chains whose reference point and shift are renewed.
        weights: `(T, clients_here)` weight of each client in an average.
    """

    step: Array
    scale: Array
    noise: Array
    communicate: Array
    refresh: Array
    weights: Array


def vr_fald(
    theta: Array,
    state: VrFaldState,
    draws: VrFaldDraws,
    data: Any,
    batch: Any,
    channel: Any,
    trace: Array,
    slot: Array,
    start: int,
    stop: int,
) -> None:
    """Run iterations of VR-FALD* (equations in the module's docstring)."""
    reference = state.reference
    shift = state.shift
    chains = theta.shape[1]
    for k in range(start, stop):
        step = gradient(theta, data, batch, k) - gradient(reference, data, batch, k) + shift
        if draws.refresh[k].any():
            for j in range(chains):
                if draws.refresh[k, j]:
                    reference[:, j] = theta[:, j]
            exchange(reference, channel, draws.weights[k], draws.refresh[k])
            full = gradient(reference, data, Everything(theta.shape[0]), k)
            for j in range(chains):
                if draws.refresh[k, j]:
                    shift[:, j] = full[:, j]
            exchange(shift, channel, draws.weights[k], draws.refresh[k])
        langevin_update(theta, draws.step[k], step, draws.scale[k], draws.noise[k])
        if draws.communicate[k].any():
            exchange(theta, channel, draws.weights[k], draws.communicate[k])
        if slot[k] >= 0:
            trace[slot[k]] = theta


def first_shift(theta: Array, state: VrFaldState, draws: VrFaldDraws, data: Any, channel: Any) -> None:
    """Set `C_0 = (1/b) sum_i grad U_i(Y_0)`: one exchange, at k = -1. All clients start at `Y_0`."""
    everyone = draws.communicate[0] | True
    state.shift[:] = gradient(state.reference, data, Everything(theta.shape[0]), 0)
    exchange(state.shift, channel, draws.weights[0], everyone)


class VrFald(Averaging):
    """VR-FALD*: FALD with a shared reference point and shift, free of client drift (Plassier et al. 2023)."""

    summary: ClassVar[str] = "FALD with control variates: no client drift, less minibatch noise"
    kernel: ClassVar[Any] = staticmethod(vr_fald)
    begin: ClassVar[Any] = staticmethod(first_shift)
    gradients_per_iteration: ClassVar[int] = 2

    name: Literal["vr_fald"] = "vr_fald"
    reference_probability: Annotated[
        float | None,
        Field(gt=0, le=1, description="q_c: chance of a new reference point in an iteration (default p_c)"),
    ] = None
    noise_correlation: NoiseCorrelation = 0.0
    temperature: Temperature = 1.0

    def reference_rate(self) -> float:
        """Return q_c."""
        return self.rate() if self.reference_probability is None else self.reference_probability

    def state(self, theta: Array) -> VrFaldState:
        """Return `Y_0`, where all clients start, and room for the shift."""
        return VrFaldState(theta.copy(), np.zeros_like(theta))

    def draws(self, streams: Streams) -> VrFaldDraws:
        """Return the randomness of a block."""
        steps = langevin_steps(streams, self.step_size, self.temperature)
        noise = correlated_noise(streams, self.noise_correlation)
        coins = self.communication_coins(streams), streams.reference(self.reference_rate())
        return VrFaldDraws(*steps, noise, *coins, equal_weights(streams))

    def traffic(self, draws: VrFaldDraws) -> Traffic:
        """One exchange for an average, two for a new reference point (the point, then the shift)."""
        taken, renewed = draws.communicate.sum(axis=1), draws.refresh.sum(axis=1)
        return Traffic((taken > 0).astype(np.int64) + 2 * (renewed > 0), taken + 2 * renewed, None)

    def full_gradients(self, draws: VrFaldDraws, start: int, stop: int) -> int:
        """One full gradient of each client for a new reference point."""
        return int(draws.refresh[start:stop].any(axis=1).sum())

    def notes(self) -> list[str]:
        """Say when q_c lies outside the paper's analysis."""
        if self.reference_rate() > self.rate():
            return [f"q_c = {self.reference_rate():g} exceeds p_c = {self.rate():g}: outside the paper's analysis"]
        return []
