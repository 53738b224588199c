"""The two engines: functions as they are, or compiled by rank 0 and loaded from its cache by the others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.generic import Everything, Rows, gradient, meaning

log = logging.getLogger(__name__)


class Engine:
    """Makes functions ready to be called.

    Args:
        world: the ranks; all of them make the same functions ready in the same order.
        compiled: whether kernels are compiled.
        fingerprint: of the user's model, part of the compile cache's key.

    Attributes:
        name: `compiled` or `interpreted`.
        compile_seconds: spent so far, waiting for rank 0 included.
    """

    def __init__(self, world: World, compiled: bool, fingerprint: str = "") -> None:
        self._world = world
        self.compiled = compiled
        self.name = "compiled" if compiled else "interpreted"
        self.compile_seconds = 0.0
        self._fingerprint = fingerprint if compiled else ""  # interpreted, no compiled text depends on it
        if compiled:
            # Numba is imported here, before MPI's channels are in use.
            import fedlangevin_mpi.comm.compiled_average  # (registers its texts)
            import fedlangevin_mpi.comm.compiled_gossip  # noqa: F401

    def ready(self, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        """Return what to call instead of a kernel with arguments of these types: the kernel, or as `compile`."""
        return self.compile(function, *arguments) if self.compiled else function

    def compile(self, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        """Return a function compiled for arguments of these types, in either engine. Collective.

        Raises:
            FedLangevinError: on all ranks, where it cannot be compiled.
        """
        from fedlangevin_mpi.runtime.compiled import compiler

        started = time.perf_counter()
        told = threading.Timer(1.5, log.info, ["compiling, which a first start does; later ones load what it leaves"])
        told.start()
        try:
            compiled = self._world.in_turn(lambda: compiler(self._fingerprint).compile(function, *arguments))
        finally:
            told.cancel()
        self.compile_seconds += time.perf_counter() - started
        return compiled


def wants_compiled(engine: str, data: Any, minibatch: bool) -> bool:
    """Return whether the compiled engine is to be used.

    Args:
        engine: of the config.
        data: a model's data.
        minibatch: whether rows are drawn.

    Raises:
        ConfigError: it was asked for, but the model has no compiled gradient.
    """
    if engine == "interpreted":
        return False
    there = all(
        meaning(gradient, type(data), batch).compiled is not None
        for batch in ([Rows] if minibatch else []) + [Everything]
    )
    if engine == "compiled" and not there:
        raise ConfigError(
            "engine: found 'compiled', but this model has no compiled gradient; allowed: auto, interpreted"
        )
    return there
