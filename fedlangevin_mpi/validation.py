"""From YAML to a validated section, with errors that name the key, what was found and what is allowed."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError, ValidationInfo

from fedlangevin_mpi.errors import ConfigError

Section = TypeVar("Section", bound=BaseModel)


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


def read_text(path: str | Path, what: str) -> str:
    """Return a text file's content.

    Args:
        path: of the file.
        what: it is, as an error names it.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{what} {path}: {e.strerror if isinstance(e, OSError) else e}") from None


def load_yaml(text: str, origin: str) -> Any:
    """Return the value that a YAML text holds.

    Raises:
        ConfigError: the text is not YAML, or gives a key twice.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as e:
        raise ConfigError(f"{origin}: not valid YAML: {' '.join(str(e).split())}") from None


def load_mapping(text: str, origin: str) -> dict[str, Any]:
    """Return the mapping that a YAML text holds.

    Raises:
        ConfigError: as `load_yaml`, or the text holds something else.
    """
    values = load_yaml(text, origin)
    if not isinstance(values, dict):
        raise ConfigError(f"{origin}: found {type(values).__name__}; allowed: a mapping of keys to values")
    return values


def validate(section: type[Section], values: Mapping[str, Any], origin: str, directory: Path | None = None) -> Section:
    """Return the section that a mapping makes.

    Args:
        section: its class.
        values: plain values, as YAML gives them.
        origin: where they are from, as an error names it.
        directory: what `beside_the_file` makes paths relative to; absent: the current directory.

    Raises:
        ConfigError: an unknown key, a wrong type or an impossible combination, each with its path, one a line.
    """
    try:
        # JSON's strictness is a config's: no "4" for 4, no 1 for true, but a list where a tuple is meant.
        context = {"directory": directory or Path()}
        return section.model_validate_json(json.dumps(values, default=str), strict=True, context=context)
    except ValidationError as e:
        raise ConfigError("\n".join(f"{origin}: {problem}" for problem in _problems(e, values, section))) from None


def beside_the_file(path: str, info: ValidationInfo) -> str:
    """Return a path that is relative to the YAML file which names it as relative to the current directory."""
    return str((info.context or {}).get("directory", Path()) / path)


def _problems(errors: ValidationError, values: Mapping[str, Any], root: type[BaseModel]) -> list[str]:
    """Return one line a key. A union tells of every alternative that failed: those inside a value say more."""
    found = [(_path(error, values), error) for error in errors.errors(include_url=False)]
    sections = {path.rpartition(".")[0] for path, _ in found}
    lines: dict[str, list[str]] = {}
    for path, error in found:
        if error["type"] == "default_factory_not_called":  # for want of the value that is wrong, which has a line
            continue
        wrong_alternative = error["type"].endswith("_type") and path in sections and isinstance(error["input"], Mapping)
        if not wrong_alternative:
            lines.setdefault(path, []).append(_describe(path, error, values, root))
    return [
        " or ".join([first, *(text.rpartition("allowed: ")[2] for text in rest)]) for first, *rest in lines.values()
    ]


def _describe(path: str, error: Any, values: Mapping[str, Any], root: type[BaseModel]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        section = _section_at(error["loc"][:-1], values, root)
        known = sorted(section.model_fields) if section is not None else []
        close = difflib.get_close_matches(str(error["loc"][-1]), known, 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        return f"{path}: unknown key{hint}; allowed: {', '.join(known)}"
    if kind == "missing":
        return f"{path}: missing; allowed: {error['msg'].lower()}"
    if kind == "value_error":
        message = str(context.get("error", error["msg"]))
        return f"{path}: {message}" if path else message
    if kind == "union_tag_not_found":
        return f"{path}.name: missing; allowed: {_names_at(error['loc'], values, root)}"
    if kind == "union_tag_invalid":
        return f"{path}.name: found {context['tag']!r}; allowed: {context['expected_tags']}"
    return f"{path}: found {error['input']!r}; allowed: {_allowed(error['msg'])}"


def _allowed(message: str) -> str:
    allowed = re.sub(r"^Input should be (a |an )?(valid )?", "", message)
    return "a mapping of keys to values" if allowed == "object" else allowed


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


def _section_at(location: Sequence[Any], values: Any, root: type[BaseModel]) -> type[BaseModel] | None:
    """Return the section at a location, of a union the one that the values there name."""
    section: type[BaseModel] | None = root
    for part in location:
        if section is not None and part in section.model_fields:
            values = values[part]
            section = _choice(_alternatives(section.model_fields[part].annotation), values)
    return section


def _choice(alternatives: Sequence[type[BaseModel]], values: Any) -> type[BaseModel] | None:
    if len(alternatives) == 1:
        return alternatives[0]
    name = values.get("name") if isinstance(values, Mapping) else None
    return next((c for c in alternatives if "name" not in c.model_fields or name in _names(c)), None)


def _names_at(location: Sequence[Any], values: Any, root: type[BaseModel]) -> str:
    """Return the names that the choice at a location allows."""
    section = _section_at(location[:-1], values, root)
    annotation = section.model_fields[location[-1]].annotation if section is not None else None
    return ", ".join(sorted({name for choice in _alternatives(annotation) for name in _names(choice)}))


def _alternatives(annotation: Any) -> list[type[BaseModel]]:
    """Return the sections that a field's annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for inner in get_args(annotation) for section in _alternatives(inner)]


def _names(section: type[BaseModel]) -> tuple[str, ...]:
    """Return the values that a section's `name` may have."""
    return get_args(section.model_fields["name"].annotation) if "name" in section.model_fields else ()
