"""The config of a run: YAML or Python, validated, with errors that name the key, what was found, what is allowed."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedlangevin_mpi.algorithms import algorithms
from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.data import sources
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.models import models


def _one_of(choices: Mapping[str, type[BaseModel]]) -> Any:
    classes = tuple(dict.fromkeys(choices.values()))
    return Annotated[Union[classes], Field(discriminator="name")] if len(classes) > 1 else classes[0]  # noqa: UP007


if TYPE_CHECKING:
    from fedlangevin_mpi.algorithms.base import Algorithm as AlgorithmChoice
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


class FileStart(_Section):
    """Start from a file: `position (chains, dim)` in an `.npz`."""

    name: Literal["file"] = "file"
    path: str


class Output(_Section):
    """Where a run writes."""

    directory: Annotated[str, Field(min_length=1, description="the run's folder")] = "runs/run"
    checkpoint_seconds: Annotated[float, Field(gt=0, description="seconds between checkpoints")] = 300.0


class RunConfig(_Section):
    """Everything that decides a run's results, and where they go."""

    seed: Annotated[int, Field(ge=0, description="of all randomness")] = 0
    clients: Annotated[int | None, Field(ge=1, description="b; absent: one client a rank")] = None
    chains: Annotated[int, Field(ge=1, description="replicas with their own start, noise and minibatch rows")] = 1
    iterations: Annotated[int, Field(ge=1, description="local steps of every client")]
    warmup: Annotated[int, Field(ge=0, description="the first of the iterations, not stored")] = 0
    thin: Annotated[int, Field(ge=1, description="keep every n-th state after warmup")] = 1
    dtype: Annotated[Literal["float32", "float64"], Field(description="of positions")] = "float64"
    coins: Annotated[
        Literal["shared", "per_chain"],
        Field(description="shared: all chains communicate together, rounds are rare; per_chain: independent chains"),
    ] = "shared"
    engine: Literal["auto", "compiled", "interpreted"] = "auto"
    device: Literal["cpu", "cuda"] = "cpu"
    initial: Annotated[PriorStart | ZeroStart | MapStart | FileStart, Field(discriminator="name")] = PriorStart()
    algorithm: AlgorithmChoice
    model: ModelChoice
    data: SourceChoice
    topology: Annotated[
        str | tuple[str, ...] | None,
        Field(description="of algorithms that gossip: the file of the clients' graph, or several that take turns"),
    ] = None
    output: Output = Output()

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        if self.warmup > self.iterations:
            raise ValueError(f"warmup: found {self.warmup}; allowed: at most iterations ({self.iterations})")
        if self.algorithm.batch_size is not None and not self.model.has_rows:
            raise ValueError(
                f"algorithm.batch_size: found {self.algorithm.batch_size}; allowed: absent, "
                f"since model {self.model.name} has no rows to draw from"
            )
        self._check_topology()
        if self.device == "cuda":
            raise ValueError(f"device: found 'cuda'; allowed: cpu for model {self.model.name}")
        return self

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

    @property
    def topologies(self) -> tuple[str, ...]:
        """The topology files, none where the algorithm does not gossip."""
        return (self.topology,) if isinstance(self.topology, str) else self.topology or ()

    @property
    def draws(self) -> int:
        """How many draws the run keeps."""
        return (self.iterations - self.warmup) // self.thin


def read_config(path: str | Path, overrides: Sequence[str] = ()) -> tuple[RunConfig, str]:
    """Return the config of a YAML file with dotted overrides (`algorithm.step_size=1e-3`), and the file's text.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or does not make a config.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"config {path}: {e.strerror if isinstance(e, OSError) else e}") from None
    return parse_config(text, overrides, str(path)), text


def parse_config(text: str, overrides: Sequence[str] = (), origin: str = "config") -> RunConfig:
    """Return the config that a YAML text makes.

    Raises:
        ConfigError: as `read_config`.
    """
    values = _load_yaml(text, origin)
    if not isinstance(values, dict):
        raise ConfigError(f"{origin}: found {type(values).__name__}; allowed: a mapping of keys to values")
    for override in overrides:
        _apply(values, override)
    return make_config(values, origin)


def make_config(values: Mapping[str, Any], origin: str = "config") -> RunConfig:
    """Return the config of a mapping.

    Raises:
        ConfigError: an unknown key, a wrong type or an impossible combination, each with its path.
    """
    try:
        # JSON's strictness is a config's: no "4" for 4, no 1 for true, but a list where a tuple is meant.
        return RunConfig.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as e:
        raise ConfigError("\n".join(f"{origin}: {problem}" for problem in _problems(e, values))) from None


def dump_config(config: RunConfig) -> dict[str, Any]:
    """Return a config as plain values with all defaults filled in; `make_config` gives the same config back."""
    return config.model_dump(mode="python")


def to_yaml(values: Mapping[str, Any]) -> str:
    """Return values as YAML that `parse_config` reads."""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


class _Loader(yaml.SafeLoader):
    """YAML without its traps: `1e-3` is a number, a key given twice is an error, nothing builds an object."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)|[0-9]+\.[0-9]*|\.[0-9]+|\.?inf)$"),
    list("-+0123456789.i"),
)


def _load_yaml(text: str, origin: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as e:
        raise ConfigError(f"{origin}: not valid YAML: {' '.join(str(e).split())}") from None


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
    values[last] = _load_yaml(text, f"override {override!r}")


def _problems(errors: ValidationError, values: Mapping[str, Any]) -> list[str]:
    """Return one line a key. A union tells of every alternative that failed: those inside a value say more."""
    found = [(_path(error, values), error) for error in errors.errors(include_url=False)]
    sections = {path.rpartition(".")[0] for path, _ in found}
    lines: dict[str, list[str]] = {}
    for path, error in found:
        wrong_alternative = error["type"].endswith("_type") and path in sections and isinstance(error["input"], Mapping)
        if not wrong_alternative:
            lines.setdefault(path, []).append(_describe(path, error, values))
    return [
        " or ".join([first, *(text.rpartition("allowed: ")[2] for text in rest)]) for first, *rest in lines.values()
    ]


def _describe(path: str, error: Any, values: Mapping[str, Any]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        known = _known_keys(error["loc"], values)
        close = difflib.get_close_matches(str(error["loc"][-1]), known, 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        return f"{path}: unknown key{hint}; allowed: {', '.join(known)}"
    if kind == "missing":
        return f"{path}: missing; allowed: {error['msg'].lower()}"
    if kind == "value_error":
        message = str(context.get("error", error["msg"]))
        return f"{path}: {message}" if path else message
    if kind == "union_tag_not_found":
        return f"{path}.name: missing; allowed: {_names_at(path)}"
    if kind == "union_tag_invalid":
        return f"{path}.name: found {context['tag']!r}; allowed: {context['expected_tags']}"
    return f"{path}: found {error['input']!r}; allowed: {_allowed(error['msg'])}"


def _allowed(message: str) -> str:
    allowed = re.sub(r"^Input should be (a |an )?(valid )?", "", message)
    return "a mapping of keys to values" if allowed == "object" else allowed


def _names_at(path: str) -> str:
    known: Mapping[str, Mapping[str, Any]] = {"algorithm": algorithms(), "model": models(), "data": sources()}
    return ", ".join(known.get(path, {})) or "one of the names that `fedlangevin schema` gives"


def _path(error: Any, values: Any) -> str:
    """Return an error's location as a dotted path, without the tags that pydantic puts in for a union's choice."""
    *sections, last = error["loc"] or ("",)
    path: list[str] = []
    for part in sections:
        inside = isinstance(values, Mapping) and part in values
        if inside or (isinstance(values, list) and isinstance(part, int) and part < len(values)):
            values = values[part]
            path.append(str(part))
    known = error["type"] == "missing" or (isinstance(values, Mapping) and last in values) or isinstance(values, list)
    return ".".join([*path, str(last)] if known else path)


def _known_keys(location: Sequence[Any], values: Any) -> list[str]:
    """Return the keys of the section that a location's last key is in."""
    section: type[BaseModel] | None = RunConfig
    for part in location[:-1]:
        if section is not None and part in section.model_fields:
            values = values[part]
            name = values.get("name") if isinstance(values, Mapping) else None
            section = _choice(section.model_fields[part].annotation, name)
    return sorted(section.model_fields) if section is not None else []


def _choice(annotation: Any, name: Any) -> type[BaseModel] | None:
    """Return the section that a field's annotation gives, of a union the one whose `name` may be `name`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_choice(inner, name) for inner in get_args(annotation))
    return next((c for c in found if c and ("name" not in c.model_fields or name in _names(c))), None)


def _names(section: type[BaseModel]) -> tuple[str, ...]:
    """Return the values that a section's `name` may have."""
    return get_args(section.model_fields["name"].annotation)
