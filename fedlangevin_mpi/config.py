"""The config of a run: YAML or Python, validated, with errors that name the key, what was found, what is allowed."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedlangevin_mpi.algorithms import algorithms
from fedlangevin_mpi.algorithms.base import Algorithm
from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.algorithms.serving import Serving
from fedlangevin_mpi.data import sources
from fedlangevin_mpi.data.augmentation import Augmentation
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.models import models
from fedlangevin_mpi.validation import load_mapping, load_yaml, read_text, validate


def _one_of(choices: Mapping[str, type[BaseModel]]) -> Any:
    classes = tuple(dict.fromkeys(choices.values()))
    return Annotated[Union[classes], Field(discriminator="name")] if len(classes) > 1 else classes[0]  # noqa: UP007


if TYPE_CHECKING:
    from fedlangevin_mpi.algorithms.base import Method as AlgorithmChoice
    from fedlangevin_mpi.data.shard import DataSource as SourceChoice
    from fedlangevin_mpi.models.base import Model as ModelChoice
else:
    AlgorithmChoice = _one_of(algorithms())
    ModelChoice = _one_of(models())
    SourceChoice = _one_of(sources())


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PriorStart(_Section):
    """Start every chain at a draw of the prior, the same on all clients; at zero where the prior is flat."""

    name: Literal["prior"] = "prior"


class ZeroStart(_Section):
    """Start every chain at zero."""

    name: Literal["zeros"] = "zeros"


class MapStart(_Section):
    """Start every chain at the posterior mode, found together: only potentials and gradients leave a client."""

    name: Literal["map"] = "map"


class ModuleStart(_Section):
    """Start every chain at a network's parameters as its module makes them, each chain from other random numbers."""

    name: Literal["module"] = "module"


class FileStart(_Section):
    """Start from a file: `position (chains, dim)` in an `.npz`, or `(clients, chains, dim)` to tell them apart."""

    name: Literal["file"] = "file"
    path: str


class Output(_Section):
    """Where a run writes."""

    directory: Annotated[str, Field(min_length=1, description="the run's folder")] = "runs/run"
    store: Annotated[
        Literal["draws", "predictive", "both"],
        Field(
            description="draws: every kept position; predictive: no position, but the posterior predictive of the "
            "held-out rows, averaged over the kept draws as they are made and written with every checkpoint; both"
        ),
    ] = "draws"
    checkpoint_seconds: Annotated[float, Field(gt=0, description="seconds between checkpoints")] = 300.0
    max_seconds: Annotated[
        float | None, Field(gt=0, description="stop with a checkpoint, exit status 75, after so many seconds")
    ] = None
    watchdog_seconds: Annotated[
        float | None,
        Field(gt=0, description="fail when nothing was finished for so long, an iteration or half a second of them"),
    ] = None


_OF_THE_ALGORITHM = 0
"""Stands for iterations that were not given."""


def _dtype_of(values: dict[str, Any]) -> Literal["float32", "float64"]:
    """Return the default of `dtype`, which depends on the model; algorithms with a server know float64 alone."""
    network, serving = (
        getattr(values.get("model"), "name", "") == "network",
        isinstance(values.get("algorithm"), Serving),
    )
    return "float32" if network and not serving else "float64"


class RunConfig(_Section):
    """Everything that decides a run's results, and where they go."""

    seed: Annotated[int, Field(ge=0, lt=2**63, description="of all randomness")] = 0
    clients: Annotated[int | None, Field(ge=1, description="b; absent: one client a rank")] = None
    chains: Annotated[int, Field(ge=1, description="replicas with their own start, noise and minibatch rows")] = 1
    iterations: Annotated[
        int, Field(ge=1, description="local steps of every client; with a server absent: its global iterations")
    ] = _OF_THE_ALGORITHM
    warmup: Annotated[int, Field(ge=0, description="the first of the iterations, not stored")] = 0
    thin: Annotated[
        int, Field(ge=1, description="keep every n-th state after warmup; absent: all, of deep_ensemble the final one")
    ] = 1
    coins: Annotated[
        Literal["shared", "per_chain"],
        Field(description="shared: all chains communicate together, rounds are rare; per_chain: independent chains"),
    ] = "shared"
    engine: Literal["auto", "compiled", "interpreted"] = "auto"
    device: Annotated[
        Literal["cpu", "cuda"],
        Field(description="where a network's gradients are computed and, without a server, its positions move"),
    ] = "cpu"
    messages: Annotated[
        Literal["host", "device"],
        Field(
            description="of device: cuda. host: through host memory, by any MPI; device: an MPI built with CUDA takes "
            "averages from the GPU's memory"
        ),
    ] = "host"
    initial: Annotated[PriorStart | ZeroStart | MapStart | ModuleStart | FileStart, Field(discriminator="name")] = (
        PriorStart()
    )
    algorithm: AlgorithmChoice
    model: ModelChoice
    data: SourceChoice
    dtype: Annotated[
        Literal["float32", "float64"],
        Field(
            description="of positions; absent: float32 for model network without a server, else float64",
            default_factory=_dtype_of,
        ),
    ]
    topology: Annotated[
        str | tuple[str, ...] | None,
        Field(description="of algorithms that gossip: the file of the clients' graph, or several that take turns"),
    ] = None
    output: Output = Output()
    on_failure: Annotated[
        Literal["abort", "shrink"],
        Field(
            description="when a rank's process dies: end the run, for `resume` to go on; or go on at once with the "
            "ranks that are left, from the last checkpoint (needs `mpirun --with-ft ulfm`)"
        ),
    ] = "abort"
    lost_clients: Annotated[
        Literal["host", "host_or_drop", "drop"],
        Field(
            description="those of a rank that died, under on_failure: shrink. host: ranks that are left read their data"
            ", and the draws are those of a run in peace; drop: the run goes on to the posterior of the others' data; "
            "host_or_drop: host if the data can be read"
        ),
    ] = "host"
    dropped_clients: Annotated[
        tuple[int, ...],
        Field(
            description="clients that take no part: the posterior is that of the others' data. on_failure: shrink adds "
            "those that it drops"
        ),
    ] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        self._check_server()
        if self.iterations == _OF_THE_ALGORITHM:
            raise ValueError("iterations: missing; allowed: an integer, at least 1")
        self._check_dropped()
        if self.warmup > self.iterations and not self.dropped_clients:  # after a drop warm-up begins again
            raise ValueError(f"warmup: found {self.warmup}; allowed: at most iterations ({self.iterations})")
        if self.algorithm.keeps == "final" and "thin" not in self.model_fields_set:
            vars(self)["thin"] = max(1, self.iterations - self.warmup)  # the model is frozen
        if self.algorithm.batch_size is not None and not self.model.has_rows:
            raise ValueError(
                f"algorithm.batch_size: found {self.algorithm.batch_size}; allowed: absent, "
                f"since model {self.model.name} has no rows to draw from"
            )
        self._check_topology()
        self._check_augmentation()
        self._check_device()
        return self

    def _check_device(self) -> None:
        if self.device != "cpu" and self.model.name != "network":
            raise ValueError(
                f"device: found {self.device!r}; allowed: cpu, since model {self.model.name} runs there alone"
            )
        if self.messages == "host":
            return
        if self.device == "cpu":
            raise ValueError(f"messages: found {self.messages!r}; allowed: host, since device is cpu")
        if self.algorithm.communicates != "average":
            raise ValueError(
                f"messages: found {self.messages!r}; allowed: host, since algorithm {self.algorithm.name} does not "
                "average over all clients"
            )

    def _check_dropped(self) -> None:
        if not self.dropped_clients and (self.lost_clients == "host" or self.on_failure == "abort"):
            return
        if isinstance(self.algorithm, Serving) or self.algorithm.communicates == "never":
            key = "dropped_clients" if self.dropped_clients else "lost_clients"
            server = isinstance(self.algorithm, Serving)
            raise ValueError(
                f"{key}: found {getattr(self, key)!r}; allowed for {self.algorithm.name}: "
                + ("()" if self.dropped_clients else "host")
                + (", since what clients gave stays in a server's state" if server else ", since it has one client")
            )
        if self.output.store != "draws":
            raise ValueError(
                f"output.store: found {self.output.store!r}; allowed: draws where clients may be dropped, whose "
                "held-out rows and draws are in the average"
            )
        if len(set(self.dropped_clients)) < len(self.dropped_clients) or min(self.dropped_clients, default=0) < 0:
            raise ValueError(f"dropped_clients: found {self.dropped_clients}; allowed: different numbers from 0 on")
        if self.clients is not None and not self.taking_part(self.clients):
            raise ValueError(f"dropped_clients: found all {self.clients} clients; allowed: one takes part at least")

    def _check_augmentation(self) -> None:
        algorithm = self.algorithm
        if self.augmentation is None:
            return
        if self.model.name != "network" or isinstance(algorithm, Serving):
            why = f"algorithm {algorithm.name}" if isinstance(algorithm, Serving) else f"model {self.model.name}"
            raise ValueError(f"data.augmentation: found one; allowed: null with {why}")
        if algorithm.batch_size is None:
            raise ValueError("data.augmentation: found one; allowed: null without algorithm.batch_size")
        if isinstance(algorithm, Algorithm) and algorithm.begin is not None:
            raise ValueError(
                f"data.augmentation: found one; allowed: null with {algorithm.name}, whose full gradients are of the "
                "rows as they are: the difference to augmented minibatches would stay in its mean"
            )

    def _check_topology(self) -> None:
        algorithm = self.algorithm
        if not isinstance(algorithm, Gossiping):
            if self.topologies:
                raise ValueError(
                    f"topology: found {self.topology!r}; allowed: absent, since {algorithm.name} does not gossip"
                )
            return
        if not self.topologies:
            raise ValueError(f"topology: missing; allowed: a topology file, since {algorithm.name} gossips")
        if len(self.topologies) > 1 and algorithm.schedule in ("pairwise", "one_peer_exponential"):
            raise ValueError(
                f"topology: found {len(self.topologies)} files; allowed: one for schedule {algorithm.schedule}"
            )

    def _check_server(self) -> None:
        algorithm = self.algorithm
        if not isinstance(algorithm, Serving):
            return
        for key, own in (("iterations", "global_iterations"), ("chains", "particles")):
            value, expected = getattr(self, key), getattr(algorithm, own)
            if key in self.model_fields_set and value != expected:
                raise ValueError(f"{key}: found {value}; allowed: absent, or algorithm.{own} ({expected})")
            vars(self)[key] = expected  # the model is frozen
        if self.dtype != "float64":
            raise ValueError(f"dtype: found {self.dtype!r}; allowed: float64 for {algorithm.name}")
        if isinstance(self.initial, MapStart):
            raise ValueError(f"initial.name: found 'map'; allowed: prior, zeros, module, file for {algorithm.name}")

    @property
    def augmentation(self) -> Augmentation | None:
        """What is done to minibatches; None where nothing is, as where data are no images."""
        found: Augmentation | None = getattr(self.data, "augmentation", None)
        return found

    @property
    def topologies(self) -> tuple[str, ...]:
        """The topology files, none where the algorithm does not gossip."""
        return (self.topology,) if isinstance(self.topology, str) else self.topology or ()

    @property
    def draws(self) -> int:
        """How many draws the run keeps."""
        return max(0, self.iterations - self.warmup) // self.thin

    def taking_part(self, clients: int) -> list[int]:
        """Return the numbers of the clients that are not dropped, of so many in all."""
        return [client for client in range(clients) if client not in self.dropped_clients]


def read_config(path: str | Path, overrides: Sequence[str] = ()) -> tuple[RunConfig, str]:
    """Return the config of a YAML file with dotted overrides (`algorithm.step_size=1e-3`), and the file's text.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or does not make a config.
    """
    text = read_text(path, "config")
    return parse_config(text, overrides, str(path)), text


def parse_config(text: str, overrides: Sequence[str] = (), origin: str = "config") -> RunConfig:
    """Return the config that a YAML text makes.

    Raises:
        ConfigError: as `read_config`.
    """
    return make_config(override(load_mapping(text, origin), overrides), origin)


def override(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return the values of a config with dotted overrides.

    Raises:
        ConfigError: an override is not `key=value`, or its key leads nowhere.
    """
    changed = copy.deepcopy(dict(values))
    for text in overrides:
        _apply(changed, text)
    return changed


def make_config(values: Mapping[str, Any], origin: str = "config") -> RunConfig:
    """Return the config of a mapping.

    Raises:
        ConfigError: an unknown key, a wrong type or an impossible combination, each with its path.
    """
    return validate(RunConfig, values, origin)


def dump_config(config: RunConfig) -> dict[str, Any]:
    """Return a config as plain values with all defaults filled in; `make_config` gives the same config back."""
    return config.model_dump(mode="python")


def to_yaml(values: Mapping[str, Any]) -> str:
    """Return values as YAML that `parse_config` reads."""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


def _apply(values: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not all(path.split(".")):
        raise ConfigError(f"override {override!r}; allowed: key=value with a dotted key, as algorithm.step_size=1e-3")
    *sections, last = path.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"override {override!r}: {section} is {inner!r}, which has no keys")
        values = inner
    values[last] = load_yaml(text, f"override {override!r}")
