"""What a config can name: every class whose field `name` (or another key) is a `Literal`, found where it is written.

So a new algorithm, model, data source, partition or topology is one class; nothing else has to list it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

Choice = TypeVar("Choice", bound=BaseModel)


def choices(base: type[Choice], namespace: Mapping[str, Any], key: str = "name") -> dict[str, type[Choice]]:
    """Return the subclasses of `base` in a module's namespace, by each value of the `Literal` of their field `key`."""
    return {
        name: found
        for found in namespace.values()
        if isinstance(found, type) and issubclass(found, base)
        for name in get_args(found.model_fields[key].annotation)
    }


def discover(base: type[Choice], package: str, key: str = "name") -> dict[str, type[Choice]]:
    """Return the `choices` in all modules of a package, importing them in alphabetical order."""
    found: dict[str, type[Choice]] = {}
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        found |= choices(base, vars(importlib.import_module(f"{package}.{module.name}")), key)
    return dict(sorted(found.items()))
