"""Whether a step size lies where theory knows a decentralised sampler to converge: a note before a run, no refusal."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from fedlangevin_mpi.algorithms.de_sghmc import DeSghmc
from fedlangevin_mpi.algorithms.de_sgld import DeSgld
from fedlangevin_mpi.algorithms.dgd import Dgd
from fedlangevin_mpi.algorithms.schedule import steps_at
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.runtime.prepare import Prepared
from fedlangevin_mpi.topology import spectrum, step_size_bound

_TINY = 0.1
"""What counts as a tiny `1 - friction step_size`, of which the theorem of DE-SGHMC says no number."""


def step_size_notes(world: World, prepared: Prepared) -> list[str]:
    """Return what the theorems of Gürbüzbalaban et al. (2021) say about the largest step, if it is outside of them.

    Every rank bounds the curvature of its own clients' potentials; two numbers of each are shared. Collective. Nothing
    is returned for graphs that change, for other algorithms and where a model knows no bounds.
    """
    algorithm, mixing = prepared.config.algorithm, prepared.mixing
    if not isinstance(algorithm, DeSgld | DeSghmc | Dgd) or mixing is None or len(mixing.matrices) > 1:
        return []
    here = world.agree(lambda: prepared.config.model.curvature(prepared.data))
    if here is None:  # by the config alone: on all ranks
        return []
    mu = world.comm.allreduce(float(here.smallest.min()), MPI.MIN)
    L = world.comm.allreduce(float(here.largest.max()), MPI.MAX)
    step = float(steps_at(algorithm.step_size, np.zeros(1))[0])
    friction = algorithm.friction if isinstance(algorithm, DeSghmc) else None
    W = mixing.matrices[0].toarray()
    return step_notes(algorithm.name, step, W, mu, L, friction)


def step_notes(name: str, step: float, W: np.ndarray, mu: float, L: float, friction: float | None = None) -> list[str]:
    """Return the notes on one step size, given the extreme curvatures `mu` and `L` of single potentials."""
    if L <= 0:
        return []
    bound = step_size_bound(W, L, mu, friction)
    notes = []
    if step >= bound.theory:
        risk = f"; from {bound.stability:.4g} on it may be unstable" if step >= bound.stability else ""
        notes.append(
            f"algorithm.step_size: {step:g} is outside the convergence theorem of {name}, which holds below "
            f"{bound.theory:.4g}{risk} (curvature of a client's potential {mu:.4g} to {L:.4g}, smallest eigenvalue of "
            f"W {spectrum(W).lambda_n:.4g})"
        )
    if friction is not None and 1 - friction * step > _TINY:
        notes.append(
            f"algorithm.friction: 1 - friction step_size is {1 - friction * step:.3g}; the convergence theorem of "
            f"{name} holds where it is close to 0"
        )
    return notes
