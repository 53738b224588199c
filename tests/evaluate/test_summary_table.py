from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from fedlangevin_mpi.evaluate.summary import summarise
from fedlangevin_mpi.evaluate.summary_table import print_summary
from fedlangevin_mpi.store.reader import open_run


@pytest.fixture
def directory(make_run):
    x = np.random.default_rng(0).normal(size=(40, 2, 2, 25))
    return make_run(x, parameters={"b": [2], "w": [23]}, coordinates={"b": ["age", "red"]})


def printed(directory, changes=None, **options) -> str:
    out = io.StringIO()
    terminal = options.pop("terminal", {})
    print_summary(summarise(open_run(directory)) | (changes or {}), directory, Console(file=out, **terminal), **options)
    return out.getvalue()


def test_table_names_parameters_and_says_how_many_more(directory):
    lines = printed(directory).splitlines()
    assert lines[0] == "fald, 2 clients, 1 rank, 2 chains, 40 draws"
    assert " ".join(lines[1].split()) == "parameter mean sd hdi_low hdi_high mcse ess_bulk ess_tail r_hat"
    assert [line.split()[0] for line in lines[2:6]] == ["b[age]", "b[red]", "w[0]", "w[1]"]
    assert lines[22] == "... and 5 more parameters; --json shows all"
    assert len(printed(directory, rows=None).splitlines()) == len(lines) + 4


def test_costs_metrics_and_files_follow(directory):
    text = printed(directory, {"metrics": {"accuracy": 0.77123, "nll": None}})
    assert "iterations    100 at 50 a second" in text
    assert "time          2.5 s (set-up 0.25 s, compilation 0.5 s)" in text
    assert "communication 20 rounds, 120 messages, 2.9 kB (3.0 kB by MPI)" in text
    assert "accuracy      0.7712" in text
    assert "nll           -" in text
    assert f"files         {directory}/ (draws in 1 rank-*.h5" in text


def test_consensus_of_a_run_that_gossips(directory):
    assert "consensus  " not in printed(directory)
    text = printed(directory, {"consensus": {"iteration": [0, 9], "distance": [1.25, 0.123456]}})
    assert "consensus     clients are 1.25 at first, 0.123 at last off their average (root mean square)" in text


def test_run_that_is_still_going_says_so(directory):
    (directory / "statistics.json").unlink()
    assert "iterations    not known: the run has not ended" in printed(directory)


def test_output_is_plain_where_there_is_no_terminal(directory):
    text = printed(directory)
    assert text.isascii()
    assert "\x1b" not in text
    assert "\x1b" in printed(directory, terminal={"force_terminal": True})


def test_no_number_is_cut_on_a_narrow_terminal(directory):
    narrow = {"force_terminal": True, "width": 40, "color_system": None}
    wide = printed(directory).splitlines()[2].split()
    assert printed(directory, terminal=narrow).splitlines()[2].split() == wide
