from __future__ import annotations

import io
import logging
from types import SimpleNamespace

import numpy as np
import pytest

from fedlangevin_mpi.runtime import progress
from fedlangevin_mpi.runtime.launcher import without_epilogue
from fedlangevin_mpi.runtime.progress import Progress, States, bar, terminal_width

LEDGER = SimpleNamespace(rounds=12, bytes=3_000_000)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def shown(width: int = 100) -> tuple[str, str]:
    """Return a bar's stream after half a run, and after all of it."""
    clock, stream = Clock(), io.StringIO()
    with Progress(1000, 0, width, stream, clock) as going:
        clock.now = 5.0
        going.see(500, LEDGER, np.zeros((1, 1, 1)))
        half = stream.getvalue()
        clock.now = 10.0
        going.see(1000, LEDGER, np.zeros((1, 1, 1)))
    return half, stream.getvalue()


def test_a_bar_says_how_far_how_fast_and_how_long():
    half, all_of_it = shown()
    assert "50 %  100 a second, 0:00:05 left, 12 rounds, 3.0 MB" in half
    assert "\n" not in half
    assert all_of_it.endswith("\n")
    assert "100 %  100 a second, 0:00:00 left" in all_of_it


def test_a_bar_is_passed_on_at_once_by_who_reads_lines():
    half, _ = shown()
    lines = io.TextIOWrapper(io.BytesIO(half.encode()), newline="")
    assert next(without_epilogue(lines)).endswith("3.0 MB\r")


def test_a_bar_fits_a_narrow_terminal():
    plain = bar(5, 10, "x" * 100, 40)
    assert sum(c in "x %0123456789━╸╺" for c in plain) <= 60  # colours have digits too
    assert plain.count("x") < 30


@pytest.mark.parametrize(("seconds", "lines"), [(9.0, 0), (11.0, 1)])
def test_without_a_terminal_a_line_is_logged_now_and_then(caplog, seconds, lines):
    clock = Clock()
    with caplog.at_level(logging.INFO), Progress(1000, 100, None, io.StringIO(), clock) as going:
        clock.now = seconds
        going.see(650, LEDGER, np.zeros((1, 1, 1)))
    assert [record.getMessage() for record in caplog.records] == [
        "iteration 650 of 1000, 50 a second, 0:00:07 left, 12 rounds, 3.0 MB"
    ][:lines]


def test_chains_that_disagree_and_clients_apart_are_said():
    generator, states = np.random.default_rng(0), States()
    for _ in range(1000):
        theta = generator.normal(size=(2, 2, 30)) + 10.0 * np.array([0, 1])[:, None]
        theta[1] = theta[0] + 6.0
        states.see(theta)
    assert len(states._kept) < 2 * progress._STATES
    r_hat, apart = states.facts(0.0)
    assert float(r_hat.removeprefix("R-hat ")) > 1.5
    assert apart == f"clients {3 * np.sqrt(30):.2g} apart"
    calm = States()
    for _ in range(1000):
        calm.see(generator.normal(size=(1, 2, 30)))
    (r_hat,) = calm.facts(0.0)
    assert float(r_hat.removeprefix("R-hat ")) < 1.1


def test_the_launcher_tells_how_wide_the_terminal_is(monkeypatch):
    assert terminal_width({progress.TERMINAL: "120"}) == 120
    monkeypatch.setattr(progress.sys, "stderr", io.StringIO())
    assert terminal_width({}) is None
