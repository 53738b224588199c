"""The rules that give W from a graph: symmetric, doubly stochastic, positive on edges and on the diagonal."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import networkx as nx
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.registry import choices
from fedlangevin_mpi.validation import beside_the_file

Array = np.ndarray[Any, np.dtype[Any]]

_BALANCED = 1e-12
_MOST_SWEEPS = 100_000


class WeightRule(BaseModel):
    """How W comes from a graph. A subclass is one choice of a topology's `weights`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    summary: ClassVar[str]
    """One line for `fedlangevin list topologies`."""

    name: str

    def matrix(self, graph: nx.Graph) -> Array:
        """Return `W (N, N)` in float64; node `i` is row `i`. An isolated node keeps its position: `W_ii = 1`.

        Raises:
            ConfigError: the rule cannot make W for this graph.
        """
        raise NotImplementedError


class Metropolis(WeightRule):
    """`W_ij = 1 / max(d_i, d_j)` for neighbours, degrees counting the node itself, and `W_ii = 1 - sum_j W_ij`.

    Xiao, Boyd, Lall (2006); the weights of Gürbüzbalaban, Gao, Hu, Zhu (2021).
    """

    summary: ClassVar[str] = "1 / max(d_i, d_j) for neighbours, degrees counting the node itself"

    name: Literal["metropolis"] = "metropolis"

    def matrix(self, graph: nx.Graph) -> Array:
        """Return the Metropolis weights."""
        adjacency = _adjacency(graph)
        degree = 1 + adjacency.sum(1)
        return _complete_diagonal(adjacency / np.maximum.outer(degree, degree))


class LazyMetropolis(WeightRule):
    """`(I + W) / 2` with the Metropolis W: no negative eigenvalue, hence a larger stable step size."""

    summary: ClassVar[str] = "(I + W) / 2 of metropolis: no negative eigenvalue"

    name: Literal["lazy_metropolis"] = "lazy_metropolis"

    def matrix(self, graph: nx.Graph) -> Array:
        """Return the mean of the identity and the Metropolis weights."""
        return (np.eye(len(graph)) + Metropolis().matrix(graph)) / 2


class MaxDegree(WeightRule):
    """`W_ij = 1 / d` for neighbours, `d` the largest degree counting the node itself, `W_ii = 1 - sum_j W_ij`."""

    summary: ClassVar[str] = "1 / d for neighbours, d the graph's largest degree counting the node itself"

    name: Literal["max_degree"] = "max_degree"

    def matrix(self, graph: nx.Graph) -> Array:
        """Return equal weights on all edges."""
        adjacency = _adjacency(graph)
        return _complete_diagonal(adjacency / (1 + adjacency.sum(1).max()))


class Sinkhorn(WeightRule):
    """Positive weights `A` of edges and nodes, balanced: `W = D A D`, the diagonal `D` such that rows sum to one.

    The weights are the graph's own, 1 where it gives none. `D` exists and is unique, since `A` is symmetric with a
    positive diagonal (Sinkhorn, Knopp 1967; Csima, Datta 1972).
    """

    summary: ClassVar[str] = "the graph's own positive weights, balanced to W = D A D"

    name: Literal["sinkhorn"] = "sinkhorn"

    def matrix(self, graph: nx.Graph) -> Array:
        """Return the balanced weights.

        Raises:
            ConfigError: the iteration did not end, since weights differ by too many orders of magnitude.
        """
        A = np.asarray(nx.to_numpy_array(graph, range(len(graph))))
        np.fill_diagonal(A, [graph.nodes[i].get("weight", 1.0) for i in range(len(graph))])
        d = 1 / np.sqrt(A.sum(1))
        for _ in range(_MOST_SWEEPS):
            row_sums = d * (A @ d)
            if np.abs(row_sums - 1).max() <= _BALANCED:
                return np.asarray(A * np.outer(d, d))
            # The geometric mean with the plain update d = 1 / (A d), which would oscillate: errors shrink by the factor
            # (1 - lambda) / 2 for every eigenvalue lambda > -1 of W.
            d = d / np.sqrt(row_sums)
        allowed = "weights that differ by fewer orders of magnitude"
        raise ConfigError(
            f"weights sinkhorn: found row sums up to {row_sums.max():g} after {_MOST_SWEEPS} sweeps; allowed: {allowed}"
        )


class FastestMixing(WeightRule):
    """The W with the smallest `gbar = max(|lambda_2|, |lambda_N|)` of all on this graph, by a convex solver.

    Boyd, Diaconis, Xiao (2004, Fastest Mixing Markov Chain on a Graph), component by component. The
    optimum may put zero on an edge or a self-loop; `floor` keeps both positive.
    """

    summary: ClassVar[str] = "the smallest max(|lambda_2|, |lambda_N|), by a convex solver (needs cvxpy)"

    name: Literal["fastest_mixing"] = "fastest_mixing"
    floor: float = Field(
        default=0.01,
        gt=0,
        le=1,
        description="smallest weight on an edge or a self-loop, in units of 1 / d, d the component's largest degree "
        "counting the node itself",
    )

    def matrix(self, graph: nx.Graph) -> Array:
        """Return the optimal weights, symmetric and with row sums of one by construction.

        Raises:
            ConfigError: cvxpy is not installed, or its solver found no optimum.
        """
        W = np.zeros((len(graph), len(graph)))
        for component in nx.connected_components(graph):
            nodes = sorted(component)
            W[np.ix_(nodes, nodes)] = self._connected(graph.subgraph(nodes), nodes)
        return W

    def _connected(self, graph: nx.Graph, nodes: list[int]) -> Array:
        if len(nodes) == 1:
            return np.ones((1, 1))
        cvxpy = _import_cvxpy()
        incidence = nx.incidence_matrix(graph, nodes, oriented=True).toarray()
        smallest = self.floor / (1 + max(degree for _, degree in graph.degree))
        edges, gbar = cvxpy.Variable(graph.number_of_edges()), cvxpy.Variable()
        W = np.eye(len(nodes)) - incidence @ cvxpy.diag(edges) @ incidence.T
        deviation, bound = W - np.full(W.shape, 1 / len(nodes)), gbar * np.eye(len(nodes))
        problem = cvxpy.Problem(
            cvxpy.Minimize(gbar),
            [deviation << bound, deviation >> -bound, edges >= smallest, cvxpy.diag(W) >= smallest],
        )
        try:
            problem.solve()
        except cvxpy.SolverError as e:
            raise ConfigError(f"weights fastest_mixing: the solver failed: {e}") from None
        if problem.status != cvxpy.OPTIMAL:
            raise ConfigError(f"weights fastest_mixing: the solver ended with status {problem.status}")
        weights = np.maximum(edges.value, smallest)
        return np.asarray(np.eye(len(nodes)) - incidence @ np.diag(weights) @ incidence.T)


class Matrix(WeightRule):
    """W itself, from a file or listed; its support must be the graph's edges and self-loops."""

    summary: ClassVar[str] = "W itself: a .npy or .csv file, or listed rows"

    name: Literal["matrix"] = "matrix"
    path: str | None = Field(
        default=None,
        description="path of the file, relative to the topology's folder; ends in .npy or .csv (numbers alone, a line "
        "a row). Either this or `values`",
    )
    values: tuple[tuple[float, ...], ...] | None = Field(
        default=None, description="the rows of W. Either this or `path`"
    )

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str | None, info: ValidationInfo) -> str | None:
        if path is None:
            return None
        if Path(path).suffix not in (".npy", ".csv"):
            raise ValueError(f"found {path!r}; allowed: a file name that ends in .npy or .csv")
        return beside_the_file(path, info)

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.path is None) == (self.values is None):
            found = "neither path nor values" if self.path is None else "both path and values"
            raise ValueError(f"found {found}; allowed: one of them")
        if self.values is not None and len({len(row) for row in self.values}) != 1:
            raise ValueError(f"values: found rows of {sorted({len(row) for row in self.values})} numbers; allowed: N")
        return self

    def matrix(self, graph: nx.Graph) -> Array:
        """Return the matrix as given.

        Raises:
            ConfigError: the file cannot be read, or holds something else than a table of numbers.
        """
        if self.path is None:
            return np.array(self.values, np.float64)
        try:
            if self.path.endswith(".npy"):
                values = np.load(self.path, allow_pickle=False)
            else:
                values = np.loadtxt(self.path, delimiter=",", ndmin=2)
            return np.ascontiguousarray(values, np.float64)
        except (OSError, ValueError, TypeError) as e:
            problem = e.strerror if isinstance(e, OSError) and e.strerror else e
            raise ConfigError(f"weights matrix: {self.path}: cannot be read: {problem}") from None


def weight_rules() -> dict[str, type[WeightRule]]:
    """Return every rule by the name that a topology gives it."""
    return choices(WeightRule, globals())


def _adjacency(graph: nx.Graph) -> Array:
    """Return `(N, N)`: 1 on edges, 0 elsewhere and on the diagonal."""
    return np.asarray(nx.to_numpy_array(graph, range(len(graph)), weight=None))


def _complete_diagonal(W: Array) -> Array:
    """Return W with the self-weights that make its rows sum to one."""
    np.fill_diagonal(W, 1 - W.sum(1))
    return W


def _import_cvxpy() -> Any:
    try:
        import cvxpy
    except ImportError:
        hint = "pip install 'fedlangevin_mpi[fastest-mixing]', or weights metropolis"
        raise ConfigError(f"weights fastest_mixing: cvxpy is not installed; allowed: {hint}") from None
    return cvxpy
