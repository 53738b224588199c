"""What a run says about itself next to its draws: `run.yaml` and `statistics.json`.

`run.yaml` holds the full config and, under `resolved`, what the ranks agreed on; the runtime writes both files, and
every reader finds them checked here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from fedlangevin_mpi.data.standardize import Standardization
from fedlangevin_mpi.errors import StoreError

Array = np.ndarray[Any, np.dtype[Any]]

RUN_FILE = "run.yaml"
STATISTICS_FILE = "statistics.json"
SUMMARY_FILE = "summary.json"
CHECKPOINTS = "checkpoint"


class Topology(BaseModel):
    """A graph of the clients and its mixing matrix W.

    Attributes:
        path: of its file.
        kind: `ring`, `edges`, ...
        lambda_2: the second largest eigenvalue of W.
        lambda_n: the smallest one.
        fingerprint: hash of W.
        components: the clients of every connected component; each samples a posterior of its own.
    """

    model_config = ConfigDict(frozen=True)

    path: str
    kind: str
    lambda_2: float
    lambda_n: float
    fingerprint: str
    components: list[list[int]]


class Launch(BaseModel):
    """One start of a run; each has a segment of draws.

    Attributes:
        iteration: the first that it did.
        ranks: how many processes.
        hosts: of the ranks.
        started: ISO time.
    """

    model_config = ConfigDict(frozen=True)

    iteration: int
    ranks: int
    hosts: list[str]
    started: str


class Resolved(BaseModel):
    """What the ranks agreed on before the first iteration.

    Attributes:
        clients: how many the run has.
        ranks: how many processes.
        chains: of every client.
        dim: of a position.
        dtype: of a position.
        parameters: the shape of every named parameter, in the order in which they lie in a position.
        coordinates: labels along one axis of a parameter; None, or no entry: it has none.
        facts: what the model knows of all shards, such as `features` and `classes`.
        hosts: of the ranks.
        versions: of the packages.
        standardization: None where features were left as they are.
        topologies: of the clients' graphs, where the algorithm gossips.
        started: ISO time of the first launch.
        model: hash of the code of a user's own model.
        launches: the start of the run, and every resume; `ranks` and `hosts` are those of the last.
    """

    model_config = ConfigDict(frozen=True)

    clients: int
    ranks: int
    chains: int
    dim: int
    dtype: str
    parameters: dict[str, tuple[int, ...]]
    coordinates: dict[str, list[str] | None] = {}
    facts: dict[str, int] = {}
    hosts: list[str] = []
    versions: dict[str, str] = {}
    standardization: Standardization | None = None
    topologies: list[Topology] = []
    started: str | None = None
    model: str = ""
    launches: list[Launch] = []

    def axes(self, parameter: str) -> list[Sequence[str] | Sequence[int]]:
        """Return the labels along every axis of a parameter: its coordinates where it has some, else 0, 1, 2, ...

        The coordinates belong to the first axis of their length.
        """
        shape = self.parameters[parameter]
        axes: list[Sequence[str] | Sequence[int]] = [range(n) for n in shape]
        labels = self.coordinates.get(parameter)
        if labels is not None and len(labels) in shape:
            axes[shape.index(len(labels))] = labels
        return axes

    def labels(self) -> list[str]:
        """Return a name for every coordinate of a position: `precision`, `coefficients[age]`, `weights[3,1]`."""
        return [
            f"{name}[{','.join(map(str, index))}]" if index else name
            for name in self.parameters
            for index in product(*self.axes(name))
        ]

    def named(self, positions: Array) -> dict[str, Array]:
        """Return `(draw, chain, dim)` positions by parameter, as `(chain, draw, *shape)`."""
        draws, chains, _ = positions.shape
        stop, found = 0, {}
        for name, shape in self.parameters.items():
            start, stop = stop, stop + prod(shape)
            found[name] = np.moveaxis(positions[:, :, start:stop], 1, 0).reshape(chains, draws, *shape)
        return found


class Communication(BaseModel):
    """What was exchanged, counted per client as the papers count it, so equal on any number of ranks.

    Attributes:
        rounds: iterations with at least one exchange.
        messages: sent by or to a client.
        bytes: in them.
        mpi_bytes: what MPI really carried.
    """

    model_config = ConfigDict(frozen=True)

    rounds: int
    messages: int
    bytes: int
    mpi_bytes: int


class Statistics(BaseModel):
    """What rank 0 writes at the end of a run.

    Attributes:
        iterations: done.
        wall_seconds: from start to end.
        setup_seconds: before the first iteration, compilation apart.
        compile_seconds: of it.
        iterations_per_second: of the sampling alone.
        gradient_evaluations: over all clients and chains.
        communication: over the whole run.
    """

    model_config = ConfigDict(frozen=True)

    iterations: int
    wall_seconds: float
    setup_seconds: float
    compile_seconds: float
    iterations_per_second: float
    gradient_evaluations: int
    communication: Communication


Content = TypeVar("Content", bound=BaseModel)


def read_run_file(directory: Path) -> tuple[dict[str, Any], Resolved]:
    """Return a run's full config and what its ranks agreed on.

    Raises:
        StoreError: `run.yaml` is missing, unreadable or incomplete.
    """
    path = directory / RUN_FILE
    if not path.exists():
        raise StoreError(f"{directory}: holds no run: there is no {RUN_FILE} in it")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict) or "resolved" not in content:
        raise StoreError(f"{path}: has no key 'resolved', so it is not the file that a run writes")
    resolved = _checked(Resolved, content.pop("resolved"), path)
    if sum(map(prod, resolved.parameters.values())) != resolved.dim:
        raise StoreError(f"{path}: the shapes of resolved.parameters do not add up to dim {resolved.dim}")
    return content, resolved


def read_statistics(directory: Path) -> Statistics | None:
    """Return what a finished run says of itself; None while it is going, or where it was killed.

    Raises:
        StoreError: `statistics.json` is unreadable or incomplete.
    """
    path = directory / STATISTICS_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error
    return _checked(Statistics, content, path)


def _checked(kind: type[Content], content: Mapping[str, Any], path: Path) -> Content:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise StoreError(f"{path}: {problems}") from error
