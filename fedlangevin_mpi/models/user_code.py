"""Code of the user's own: the one module that a config names, what it was made from, and errors that say so."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fedlangevin_mpi.errors import ConfigError

_imported: dict[Path, str] = {}
"""Digests of the users' sources as they were when this process first met them: later edits are not what runs."""


class Loaded(NamedTuple):
    """What a factory returned.

    Attributes:
        value: the object.
        sources: digest of every source that it was made from, as imported.
        fingerprint: hash of the sources, the factory and its options.
        make: calls the factory again.
    """

    value: Any
    sources: dict[Path, str]
    fingerprint: str
    make: Callable[[], Any]


@cache
def load(key: str, factory: str, options: str) -> Loaded:
    """Import a factory and call it; once for each set of options in a process.

    The import path gets the current directory as its first entry, as with `python -m`.

    Args:
        key: path of the config's key, for messages.
        factory: `module:function`.
        options: the function's keyword arguments, as JSON.

    Raises:
        ConfigError: it cannot be imported, or it raised.
    """
    name, _, function = factory.partition(":")
    try:
        module = _import(name)
    except Exception as error:
        raise refused(key, factory, f"importing {name} failed", error) from error
    if getattr(module, "__file__", None) is None:
        raise refused(key, factory, f"{name} has no file; allowed: a module that is one, so that edits are noticed")
    if not callable(getattr(module, function, None)):
        raise refused(key, factory, f"{name} ({module.__file__}) has no function {function!r}")
    make = partial(getattr(module, function), **json.loads(options))
    try:
        value = make()
    except Exception as error:
        raise refused(key, factory, f"{function}({_arguments(options)}) raised", error) from error
    sources = {path: _imported.setdefault(path, _digest(path)) for path in _sources(module)}
    parts = [factory, options, *(f"{path.name}={digest}" for path, digest in sources.items())]
    return Loaded(value, sources, hashlib.sha256("\0".join(parts).encode()).hexdigest(), make)


def check_unchanged(key: str, factory: str, loaded: Loaded) -> None:
    """Refuse to go on with code that is not what its file says now.

    Raises:
        ConfigError: a source was edited after this process imported it.
    """
    for path, digest in loaded.sources.items():
        if not path.exists() or _digest(path) != digest:
            raise refused(key, factory, f"{path} was edited after this process imported it; start a new process")


def refused(key: str, factory: str, problem: str, error: Exception | None = None) -> ConfigError:
    """Return the error that names the key, its value, the problem and the last line of the user's traceback."""
    reason = "" if error is None else f": {traceback.format_exception_only(error)[-1].strip()}"
    return ConfigError(f"{key}: found {factory!r}: {problem}{reason}")


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()  # the file may be younger than the last look at its folder
    module = sys.modules.get(name)
    if module is None or name == "__main__":
        return importlib.import_module(name)
    file = getattr(module, "__file__", None)
    known = file is None or Path(file) in _imported
    return module if known else importlib.reload(module)  # somebody else imported it, maybe before its last edit


def _sources(module: ModuleType) -> Iterator[Path]:
    """Yield the files of all imported modules in the folder of a module or beneath it, installed packages apart."""
    top = sys.modules[module.__name__.partition(".")[0]]
    folder = Path(getattr(top, "__file__", None) or str(module.__file__)).parent
    files = {Path(getattr(m, "__file__", None) or "") for m in list(sys.modules.values())}
    installed = {"site-packages", "dist-packages", "fedlangevin_mpi"}
    for path in sorted(file for file in files if file.is_absolute() and file.is_file()):
        if path.is_relative_to(folder) and installed.isdisjoint(path.relative_to(folder).parts):
            yield path


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _arguments(options: str) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in json.loads(options).items())
