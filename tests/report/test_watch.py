from __future__ import annotations

import io
import time

import numpy as np
import pytest
from rich.console import Console

from fedlangevin_mpi.errors import StoreError
from fedlangevin_mpi.report.watch import Pace, line, look, spark, watch


def going(folder, iterations=1000):
    """Make of a finished run one that has not ended."""
    (folder / "statistics.json").unlink()
    content = folder / "run.yaml"
    content.write_text(content.read_text().replace("iterations: 100\n", f"iterations: {iterations}\n"))
    return folder


def seen_by(folder, **options) -> str:
    console = Console(file=io.StringIO(), width=100)
    watch(folder, console=console, once=True, **options)
    return console.file.getvalue()


def test_the_worst_parameter_comes_first_and_clients_have_their_distance(make_run):
    draws = np.random.default_rng(0).normal(size=(400, 2, 2, 3))
    draws[:, :, 1, 2] += 3.0
    draws[-1, 0], draws[-1, 1] = 1.0, 5.0
    seen = look(going(make_run(draws, [[0], [1]])))
    assert (seen.iteration, seen.iterations, seen.ended) == (400, 1000, False)
    assert seen.names[0] == "x[2]"
    assert seen.r_hat[0] > 1.5 > seen.r_hat[1]
    assert [(c.number, c.draws, c.distance) for c in seen.clients] == [(0, 400, 2.0), (1, 400, 2.0)]
    text = seen_by(seen.directory)
    assert "iteration 400 of 1,000" in text
    assert text.index("x[2]") < text.index("x[0]")


def test_a_silent_run_is_said_to_be_stuck_or_gone(make_run):
    folder = going(make_run(np.zeros((4, 1, 1, 1))))
    assert "going" in line(look(folder), None).plain
    assert "nothing written for 0:01:40: stuck, or gone" in line(look(folder, lambda: time.time() + 100), None).plain


@pytest.mark.parametrize("shape", [(0, 1, 1, 1), (1, 1, 1, 1), (3, 2, 1, 1), (5, 1, 2, 60_000)])
def test_a_run_with_hardly_a_draw_can_be_watched(make_run, shape):
    folder = going(make_run(np.ones(shape, np.float32)))
    assert ("no draw yet" in seen_by(folder)) == (shape[0] == 0)


def test_a_run_that_has_no_file_yet_can_be_watched(make_run):
    folder = going(make_run(np.ones((1, 1, 1, 1))))
    (folder / "rank-00000.h5").unlink()
    assert "no draw yet" in seen_by(folder)
    with pytest.raises(StoreError, match="holds no run"):
        watch(folder.parent, once=True)


def test_the_pace_is_that_since_the_first_draw(make_run):
    seen = look(going(make_run(np.ones((4, 1, 1, 1)))))
    pace = Pace()
    assert pace.rate(seen._replace(iteration=0), lambda: 0.0) is None
    assert pace.rate(seen._replace(iteration=100), lambda: 10.0) is None
    assert pace.rate(seen._replace(iteration=300), lambda: 14.0) == 50.0
    assert "50 a second, 0:00:14 left" in line(seen._replace(iteration=300), 50.0).plain


def test_a_spark_line_shows_the_course():
    assert spark(np.arange(8.0)) == "▁▂▃▄▅▆▇█"
    assert spark(np.ones(3)) == "▅▅▅"
    assert len(spark(np.arange(1000.0))) == 24
