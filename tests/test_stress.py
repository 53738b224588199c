"""The short form of launch/stress.py."""

import subprocess
import sys
from pathlib import Path

import pytest

STRESS = Path(__file__).parents[1] / "launch" / "stress.py"


@pytest.mark.slow
def test_ranks_are_killed_and_draws_are_those_of_a_run_in_peace():
    command = [sys.executable, str(STRESS), "--kills", "3", "--iterations", "40000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kills: equal to the bit, no process and no temporary file is left" in done.stdout
