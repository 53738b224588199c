"""Keyed random generators: what is drawn depends on (seed, purpose, client, block) and on nothing else.

Two ranks that ask for the same key get the same numbers without a message, and a client's numbers do not depend on
the rank that hosts it.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream is for. Values are part of a run's identity: append, never renumber."""

    INITIAL = 0
    DATA = 1
    TEST_SPLIT = 2
    PARTITION = 3
    NOISE = 4
    COMMON_NOISE = 5
    ROWS = 6
    COMMUNICATION = 7
    REFERENCE = 8
    PARTICIPATION = 9
    SCHEDULE = 10
    VARIATIONAL = 11
    AUGMENTATION = 12


def generator(seed: int, purpose: Purpose, client: int = 0, block: int = 0) -> np.random.Generator:
    """Return the generator of one key.

    Args:
        seed: the run's seed, a non-negative integer.
        purpose: what the numbers are for.
        client: the client they belong to; 0 for what all clients share.
        block: the block of iterations they belong to; 0 for what is drawn once.
    """
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(purpose, client, block))))
