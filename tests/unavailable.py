"""What a machine lacks for some tests: they are skipped there, but not where they are known to be able to run."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def unavailable(reason: str) -> NoReturn:
    """Skip the test, or fail it where `.ci/run` installed what it needs (FEDLANGEVIN_EXPECT_CLUSTER=1)."""
    if os.environ.get("FEDLANGEVIN_EXPECT_CLUSTER") == "1":
        pytest.fail(f"expected to run here: {reason}", pytrace=False)
    pytest.skip(reason)
