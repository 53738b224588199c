"""The two engines: functions as they are, or compiled by rank 0 and loaded from its cache by the others."""

from __future__ import annotations

import logging
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
        compiled: whether functions are compiled.
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
        if compiled:
            # Numba is imported here, before MPI's channels are in use, and only by this engine.
            import fedlangevin_mpi.comm.compiled_average  # (registers its texts)
            import fedlangevin_mpi.comm.compiled_gossip  # noqa: F401
            from fedlangevin_mpi.runtime.compiled import compiler

            self._compiler = compiler(fingerprint)
            if self._compiler.is_empty():
                log.info("compiling, which takes some seconds at the first start of a sampler with a model")

    def ready(self, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        """Return what to call instead of `function` with arguments of these types. Collective.

        Raises:
            FedLangevinError: on all ranks, where it cannot be compiled.
        """
        if not self.compiled:
            return function
        started = time.perf_counter()
        compiled = self._world.in_turn(lambda: self._compiler.compile(function, *arguments))
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
