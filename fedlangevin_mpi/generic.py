"""The two words that kernels speak: `gradient` and `exchange`, chosen by the type of a model's data and of a channel.

A kernel says `gradient(theta, data, batch, k)` and `exchange(theta, channel, weights[, chains])`. Called from Python,
the words look up the interpreted implementation that `define` registered; `runtime.compiled` gives Numba the compiled
one for the same types, so one kernel text serves both engines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Full fastmath would turn a NaN into a ZeroDivisionError; these flags cost no speed and keep a NaN in its chain.
# Without the GIL a kernel leaves the interpreter to the watchdog while it waits for another rank.
OPTIONS: dict[str, Any] = {"fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy", "nogil": True}
"""With which Numba compiles."""


class Rows(NamedTuple):
    """A minibatch for every iteration, client and chain of a block.

    Attributes:
        row: `(iterations, clients_here, chains, n)` a row of the concatenated shards; padded to the largest `n`.
        drawn: `(clients_here,)` how many of the `n` belong to the client, `n_i = min(batch_size, N_i)`.
        weight: `(clients_here, n)` the factor `N_i / n_i` of each drawn row, 0 where padded.
    """

    row: Array
    drawn: Array
    weight: Array


class AugmentedRows(NamedTuple):
    """A minibatch of images, each to be cropped and mirrored at random; known to networks alone.

    Attributes:
        row: as of `Rows`.
        drawn: as of `Rows`.
        weight: as of `Rows`.
        shift: `(iterations, clients_here, chains, n, 2)` first row and first column of the crop, 0 to 2 padding.
        flip: `(iterations, clients_here, chains, n)` bool.
        padding: pixels of 0 around an image before it is cropped.
    """

    row: Array
    drawn: Array
    weight: Array
    shift: Array
    flip: Array
    padding: int


class Everything(NamedTuple):
    """All rows of every client: a full gradient.

    Attributes:
        clients: how many clients are here (Numba needs a NamedTuple with a field).
    """

    clients: int


class Implementation(NamedTuple):
    """One meaning of a word: the interpreted function and the text that Numba compiles; None where there is none."""

    interpreted: Callable[..., Any] | None = None
    compiled: Callable[..., Any] | None = None


_MEANINGS: dict[str, dict[tuple[type, ...], Implementation]] = {"gradient": {}, "exchange": {}}


def define(
    word: Callable[..., Any],
    *types: type,
    interpreted: Callable[..., Any] | None = None,
    compiled: Callable[..., Any] | None = None,
) -> None:
    """Give `word` its meaning for these types: `(data, batch)` for `gradient`, `(channel,)` for `exchange`.

    The compiled text may be added later than the interpreted function, by a module that imports Numba.
    """
    known = _MEANINGS[word.__name__].get(types, Implementation())
    _MEANINGS[word.__name__][types] = Implementation(interpreted or known.interpreted, compiled or known.compiled)


def meaning(word: Callable[..., Any], *types: type) -> Implementation:
    """Return what `word` means for these types: nothing, where nothing was defined."""
    return _MEANINGS[word.__name__].get(types, Implementation())


def _interpret(word: Callable[..., Any], *types: type) -> Callable[..., Any]:
    function = meaning(word, *types).interpreted
    if function is None:
        raise TypeError(f"{word.__name__} is not defined for ({', '.join(t.__name__ for t in types)})")
    return function


def gradient(theta: Array, data: Any, batch: Any, k: int) -> Array:
    """Return `(clients_here, chains, dim)`: the gradient of every client's potential at its chains' positions.

    With `Rows`, the unbiased estimate `w_i grad U0 + (N_i/n_i) sum_{j in S} grad U_ij` of iteration `k` of the block;
    with `Everything`, the full gradient.
    """
    result: Array = _interpret(gradient, type(data), type(batch))(theta, data, batch, k)
    return result


def exchange(theta: Array, channel: Any, weights: Any, chains: Array | None = None) -> None:
    """Replace `theta` by what the channel's exchange makes of it, in place.

    Args:
        theta: `(clients_here, chains, dim)`.
        channel: where it goes.
        weights: of an average, `(clients_here,)` the weight of each client here; of gossip, the number of the mixing
            matrix.
        chains: of an average, `(chains,)` bool, the chains that take the result, while the others keep their values;
            gossip is of all chains.
    """
    _interpret(exchange, type(channel))(theta, channel, weights, chains)
