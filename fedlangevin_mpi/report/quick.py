"""A quick look from Python: figures of a run, to show or save."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from fedlangevin_mpi.errors import ConfigError, StoreError
from fedlangevin_mpi.evaluate.predictive import reliability
from fedlangevin_mpi.report import contents, posterior_plots, run_plots
from fedlangevin_mpi.store.reader import no_draws

if TYPE_CHECKING:
    from fedlangevin_mpi.store.reader import Run


def trace_figure(run: Run, count: int) -> Figure:
    """Return the traces of the parameters with the largest R-hat.

    Raises:
        StoreError: the run has no draws.
    """
    if not run.draws:
        raise StoreError(no_draws(run))
    parameters = contents.summary_on_disk(run)["parameters"]
    columns = contents.worst(parameters, count)
    iterations, series = contents.series(run, columns)
    return posterior_plots.trace(iterations, series, [parameters["name"][k] for k in columns])


def reliability_figure(run: Run) -> Figure:
    """Return the reliability diagram of the held-out rows' predictions.

    Raises:
        ConfigError: there are none.
    """
    found = contents.answers(run)
    if found is None:
        raise ConfigError(
            f"{run.directory}: has no predictions of held-out rows; allowed: a run with data.test_fraction (or x_test, "
            "y_test in its files), a model that predicts classes, and draws"
        )
    return run_plots.reliability(reliability(found.probabilities, found.y))
