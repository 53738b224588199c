"""The compiled engine: kernels through Numba, the two generic words by type, and a cache on disk that is never stale.

Imports Numba. Numba keys its cache on a kernel's own file only, so an edited gradient in another file would be served
stale; the cache folder's name therefore carries a hash of all of the package's sources and of the user's model.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.extending import overload

import fedlangevin_mpi
from fedlangevin_mpi.generic import OPTIONS, exchange, gradient, meaning

log = logging.getLogger(__name__)


# Numba wants the signatures of an overload and of the text it returns to be the same to the letter: no annotations.
@overload(gradient, jit_options=OPTIONS)
def _gradient(theta, data, batch, k):
    return meaning(gradient, _python_type(data), _python_type(batch)).compiled


@overload(exchange, jit_options=OPTIONS)
def _exchange(theta, channel, weights, chains=None):
    return meaning(exchange, _python_type(channel)).compiled


def _python_type(numba_type: Any) -> type:
    return numba_type.instance_class if isinstance(numba_type, types.BaseNamedTuple) else type(numba_type)


class Compiler:
    """Compiles functions for given arguments, in a cache folder that later starts and other ranks find.

    Args:
        fingerprint: what else than the package's sources decides what is compiled: the user's model.
        directory: where caches of all fingerprints lie; by default a per-user folder.
    """

    def __init__(self, fingerprint: str = "", directory: Path | None = None) -> None:
        self.directory = _usable_folder((directory or _user_cache()) / _sources_hash(fingerprint))
        self._dispatchers: dict[Callable[..., Any], Any] = {}

    def compile(self, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        """Return `function` compiled for the types of `arguments`, from the cache where it is there."""
        dispatcher = self._dispatchers.get(function)
        if dispatcher is None:
            dispatcher = self._dispatchers[function] = self._dispatcher(function)
        signature = tuple(numba.typeof(a) for a in arguments)
        try:
            dispatcher.compile(signature)
        except OSError as e:  # the folder is full, or went away: compile without it
            log.warning("the compile cache %s cannot be used (%s)", self.directory, e)
            dispatcher = self._dispatchers[function] = numba.njit(**OPTIONS)(function)
            dispatcher.compile(signature)
        compiled: Callable[..., Any] = dispatcher
        return compiled

    def cache_hits(self, function: Callable[..., Any]) -> int:
        """Return how many compiled versions of `function` came from the cache."""
        return sum(self._dispatchers[function].stats.cache_hits.values())

    def _dispatcher(self, function: Callable[..., Any]) -> Any:
        with _numba_cache(self.directory):
            return numba.njit(cache=True, **OPTIONS)(function)


@contextlib.contextmanager
def _numba_cache(directory: Path) -> Iterator[None]:
    # Numba reads these when a dispatcher is made. Without the second it falls back silently to a folder beside the
    # sources when the first cannot be written.
    before = numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES
    numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = str(directory), "UserProvidedCacheLocator"
    try:
        yield
    finally:
        numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = before


@cache
def compiler(fingerprint: str) -> Compiler:
    """Return this process's compiler for a user's model: what it compiled for one run serves the next."""
    return Compiler(fingerprint)


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "fedlangevin"


def _usable_folder(wanted: Path) -> Path:
    # Compiled code is executed when it is loaded: only a folder that is ours alone is trusted.
    try:
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = wanted.stat()
        if status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            with tempfile.TemporaryFile(dir=wanted):
                return wanted
        problem = "others may write to it"
    except OSError as e:
        problem = str(e)
    fallback = _temporary_folder()
    log.info("compile cache %s: %s; using %s for this run", wanted, problem, fallback)
    return fallback


@cache
def _temporary_folder() -> Path:
    import atexit
    import shutil

    folder = tempfile.mkdtemp(prefix="fedlangevin-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _sources_hash(fingerprint: str) -> str:
    digest = hashlib.sha256(f"{numba.__version__}\0{fingerprint}".encode())
    root = Path(fedlangevin_mpi.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]
