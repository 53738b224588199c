"""Exact stationary laws of linear random recursions.

One iteration draws branch `r` with probability `q_r`, independently of everything before, and maps

    s' = A_r s + c_r + e_r,   e_r of mean 0 and covariance Q_r.

The stationary mean and covariance solve, with `k_r = A_r m + c_r - m`,

    m = E[A] m + E[c],   V = E[A V A'] + E[k k' + Q]

exactly if the spectral radius of `E[A (x) A]` is below 1 (the equation of the raw second moment, centred at `m` so
that means far from zero cost no digits). Langevin samplers are such recursions on quadratic potentials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_discrete_lyapunov
from scipy.sparse.linalg import LinearOperator, gmres

from fedlangevin_mpi.errors import FedLangevinError

Array = np.ndarray[Any, np.dtype[Any]]

DIRECT_LIMIT = 40
"""Laws of several branches: up to this dimension solved directly (820 unknowns), above by GMRES."""

_TOLERANCE = 1e-10
_RESTART = 20  # vectors of n^2 numbers that GMRES keeps: 0.7 GB for 100 clients in 20 dimensions


class Branch(NamedTuple):
    """One way an iteration can go.

    Attributes:
        probability: `q_r`; those of all branches of an iteration sum to 1.
        transition: `A_r (n, n)`, an array or a `LinearOperator` that maps `(n, k)` arrays.
        shift: `c_r (n,)`.
        noise: `Q_r (n, n)`, covariance of the noise.
    """

    probability: float
    transition: Any
    shift: Array
    noise: Array


class Law(NamedTuple):
    """A mean and a covariance; of a Gaussian unless several branches mix.

    Attributes:
        mean: `(n,)`.
        covariance: `(n, n)`.
    """

    mean: Array
    covariance: Array


def mixture(probabilities: Sequence[float], laws: Sequence[Law]) -> Law:
    """Return mean and covariance of a draw from one of the laws, chosen with the given probabilities."""
    mean = sum(p * law.mean for p, law in zip(probabilities, laws, strict=True))
    covariance = np.zeros_like(laws[0].covariance)
    for p, law in zip(probabilities, laws, strict=True):
        off = law.mean - mean
        covariance += p * (law.covariance + np.outer(off, off))
    return Law(np.asarray(mean), covariance)


def advance(law: Law, branches: Sequence[Branch]) -> Law:
    """Return the law after one more iteration."""
    after = [
        Law(r.transition @ law.mean + r.shift, _congruence(r.transition, law.covariance) + r.noise) for r in branches
    ]
    return mixture([r.probability for r in branches], after)


def stationary(branches: Sequence[Branch], slow: Array | None = None) -> Law:
    """Return the stationary law of a recursion; see `cycle` for arguments and errors."""
    return cycle([branches], slow)[0]


def cycle(phases: Sequence[Sequence[Branch]], slow: Array | None = None) -> list[Law]:
    """Return the periodically stationary laws of a recursion whose branches repeat in a cycle of phases.

    Where every phase has one branch, the covariance solves a Lyapunov equation: a second at n = 400. Of several
    branches it is solved for directly up to `DIRECT_LIMIT` dimensions, on its lower triangle; above by GMRES, which
    keeps some 25 matrices `(n, n)` and takes a minute at n = 2,000.

    Args:
        phases: the branches of each iteration of the cycle.
        slow: `(n, k)` basis of the directions that forget slowest, where they are known; GMRES then converges in some
            100 iterations however small a step is. For samplers that average: all clients alike.

    Returns:
        The law after each phase.

    Raises:
        FedLangevinError: the recursion is unstable, the spectral radius of `E[A (x) A]` over a cycle is 1 or more.
        ValueError: the probabilities of a phase do not sum to 1.
    """
    phases = [_possible(branches) for branches in phases]
    n = len(phases[0][0].shift)
    if all(len(branches) == 1 for branches in phases):
        solve = _lyapunov_solver(phases)
    else:
        solve = _direct_solver(phases) if n <= DIRECT_LIMIT else _krylov_solver(phases, slow)
    _check_stable(phases, solve)
    nothing = np.zeros((n, n))
    shift = _walk(phases, Law(np.zeros(n), nothing))[-1].mean
    mean = np.linalg.solve(np.eye(n) - _mean_map(phases, np.eye(n)), shift)
    covariance = solve(_walk(phases, Law(mean, nothing))[-1].covariance, _TOLERANCE)
    if covariance is None:
        raise FedLangevinError(f"the stationary covariance of dimension {n} did not converge; a larger step size helps")
    return _walk(phases, Law(mean, covariance))


def restricted(branch: Branch, basis: Array) -> Branch:
    """Return the recursion of the coordinates `u` of states `s = B u` that every iteration leaves in the span of `B`.

    A state with a conserved quantity has no stationary law (its transition has an eigenvalue 1), but the states that
    share the quantity's initial value, here zero, may have one: solve for that, and `lifted` gives the law of `s`.

    Args:
        branch: maps the span of the basis into itself, shift and noise included.
        basis: `B (n, k)`, orthonormal columns.
    """
    transition = basis.T @ (branch.transition @ basis)
    return Branch(branch.probability, transition, basis.T @ branch.shift, basis.T @ branch.noise @ basis)


def lifted(law: Law, basis: Array) -> Law:
    """Return the law of `s = B u`, given that of `u`."""
    return Law(basis @ law.mean, basis @ law.covariance @ basis.T)


Solver = Callable[[Array, float], Array | None]
"""Maps R and a relative tolerance to the V with `V - E[A V A'] = R`; None where there is no or not one solution."""


def _possible(branches: Sequence[Branch]) -> list[Branch]:
    total = math.fsum(r.probability for r in branches)
    if abs(total - 1) > 1e-12 or min(r.probability for r in branches) < 0:
        found = [r.probability for r in branches]
        raise ValueError(f"the branches have probabilities {found}; allowed: none negative, with sum 1")
    return [r for r in branches if r.probability > 0]


def _congruence(transition: Any, symmetric: Array) -> Array:
    # A V A' = A (A V)' for a symmetric V: only products from the left, so that A may be an operator.
    result: Array = transition @ (transition @ symmetric).T
    return result


def _walk(phases: Sequence[Sequence[Branch]], law: Law) -> list[Law]:
    """Return the law after each phase of a cycle that starts with `law`."""
    laws = []
    for branches in phases:
        law = advance(law, branches)
        laws.append(law)
    return laws


def _mean_map(phases: Sequence[Sequence[Branch]], columns: Array) -> Array:
    """Return `E[A]` of a cycle, times columns."""
    for branches in phases:
        terms = (r.probability * (r.transition @ columns) for r in branches)
        columns = sum(terms, start=np.zeros_like(columns))
    return columns


def _second_moment_map(phases: Sequence[Sequence[Branch]], symmetric: Array) -> Array:
    """Return `E[A V A']` of a cycle."""
    for branches in phases:
        terms = (r.probability * _congruence(r.transition, symmetric) for r in branches)
        symmetric = sum(terms, start=np.zeros_like(symmetric))
    return symmetric


def _check_stable(phases: Sequence[Sequence[Branch]], solve: Solver) -> None:
    # Lyapunov: X and X - E[A X A'] both positive definite is possible exactly if the radius is below 1. The solution
    # for the identity has no eigenvalue below 1 then, so that a rough one decides.
    n = len(phases[0][0].shift)
    certificate = solve(np.eye(n), 1e-4)
    if certificate is None or np.linalg.eigvalsh(certificate)[0] <= 0:
        radius = _spectral_radius(phases)
        verdict = "is unstable" if radius >= 1 else "could not be shown to be stable"
        raise FedLangevinError(
            f"the recursion {verdict}: E[A (x) A] has a spectral radius of about {radius:.6g}; allowed: below 1, which "
            "a smaller step size gives"
        )


def _spectral_radius(phases: Sequence[Sequence[Branch]]) -> float:
    # Power iteration from the identity, which is never orthogonal to the leading eigenvector, a semi-definite matrix.
    x = np.eye(len(phases[0][0].shift))
    size = 0.0
    for _ in range(200):
        x = _second_moment_map(phases, x)
        size = float(np.trace(x))
        x /= size
    return size


def _lyapunov_solver(phases: Sequence[Sequence[Branch]]) -> Solver:
    transition = _mean_map(phases, np.eye(len(phases[0][0].shift)))
    stable = np.abs(np.linalg.eigvals(transition)).max() < 1

    def solve(right: Array, tolerance: float) -> Array | None:
        if not stable:
            return None
        v = solve_discrete_lyapunov(transition, right)
        return np.asarray(v + v.T) / 2

    return solve


def _direct_solver(phases: Sequence[Sequence[Branch]]) -> Solver:
    n = len(phases[0][0].shift)
    row, column = np.tril_indices(n)
    system = np.eye(len(row))
    for branches in phases:
        step = np.zeros_like(system)
        for r in branches:
            a = r.transition @ np.eye(n)
            # (A V A')_ij = sum_{k >= l} (A_ik A_jl + [k != l] A_il A_jk) V_kl
            step += r.probability * a[np.ix_(row, row)] * a[np.ix_(column, column)]
            step += r.probability * a[np.ix_(row, column)] * a[np.ix_(column, row)] * (row != column)
        system = step @ system
    system = np.eye(len(row)) - system

    def solve(right: Array, tolerance: float) -> Array | None:
        try:
            lower = np.linalg.solve(system, right[row, column])
        except np.linalg.LinAlgError:
            return None
        solution = np.empty((n, n))
        solution[row, column] = solution[column, row] = lower
        return solution

    return solve


def _krylov_solver(phases: Sequence[Sequence[Branch]], slow: Array | None) -> Solver:
    n = len(phases[0][0].shift)

    def residual(v: Array) -> Array:
        return v - _second_moment_map(phases, v.reshape(n, n)).ravel()

    operator = LinearOperator((n * n, n * n), matvec=residual, dtype=float)
    preconditioner = None if slow is None else _coarse_correction(phases, slow)

    def solve(right: Array, tolerance: float) -> Array | None:
        v, failed = gmres(operator, right.ravel(), rtol=tolerance, restart=_RESTART, maxiter=20, M=preconditioner)
        v = v.reshape(n, n)
        return None if failed else (v + v.T) / 2

    return solve


def _coarse_correction(phases: Sequence[Sequence[Branch]], slow: Array) -> LinearOperator:
    """Return the preconditioner that solves exactly, for the mean transition, among the slow directions."""
    n = len(slow)
    coordinates = np.linalg.pinv(slow)
    coarse = coordinates @ _mean_map(phases, slow)

    def apply(v: Array) -> Array:
        right = coordinates @ v.reshape(n, n) @ coordinates.T
        correction = slow @ (solve_discrete_lyapunov(coarse, right) - right) @ slow.T
        return np.asarray(v + correction.ravel())

    return LinearOperator((n * n, n * n), matvec=apply, dtype=float)
