"""The page of several runs: which is closest to the target, for how much time and communication."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedlangevin_mpi.errors import FedLangevinError
from fedlangevin_mpi.evaluate.distances import gaussian_w2
from fedlangevin_mpi.evaluate.predictive import agreement, total_variation
from fedlangevin_mpi.evaluate.recursion import Law
from fedlangevin_mpi.report import contents, run_plots, trust
from fedlangevin_mpi.report.ink import Picture, inked, picture
from fedlangevin_mpi.report.run_page import interval_picture

if TYPE_CHECKING:
    from fedlangevin_mpi.store.reader import Run

_LISTED = 20
_DENSE = 200  # parameters up to which a covariance is worth its size


class Entry(NamedTuple):
    """A run of the comparison: a row of its table."""

    name: str
    run: Run
    summary: dict[str, Any]
    checks: list[trust.Check]
    ess: float | None
    ess_per_second: float | None
    ess_per_megabyte: float | None
    w2: float | None
    tv: float | None
    agreement: float | None


class ComparisonPage(NamedTuple):
    """What the template `comparison.html` shows; `w2_to` and `tv_to` say what distances are to."""

    entries: list[Entry]
    w2_to: str
    tv_to: str
    metrics: list[str]
    pictures: list[Picture]


def comparison(runs: Sequence[Run]) -> ComparisonPage:
    """Gather a comparison's page.

    Distances in W2 are between Gaussians with the moments of the draws; to the exact posterior where it is known and
    the same for all runs, else to the first run. Those of predictives are to the first run.

    Raises:
        FedLangevinError: the runs have different parameters.
        StoreError: a file of a run cannot be read.
    """
    for run in runs[1:]:
        if run.resolved.labels() != runs[0].resolved.labels():
            raise FedLangevinError(
                f"{run.directory}: has other parameters than {runs[0].directory}; allowed: runs of one model"
            )
    names = _names(runs)
    target, w2_to = _target(runs, names)
    first = contents.answers(runs[0])
    entries = [_entry(name, run, target, first) for name, run in zip(names, runs, strict=True)]
    metrics = list(dict.fromkeys(metric for entry in entries for metric in entry.summary["metrics"]))
    with inked():
        return ComparisonPage(entries, w2_to, names[0], metrics, _pictures(entries))


def _names(runs: Sequence[Run]) -> list[str]:
    """Return the folders' names, whole paths where two have the same."""
    short = [run.directory.resolve().name for run in runs]
    return short if len(set(short)) == len(short) else [str(run.directory) for run in runs]


def _target(runs: Sequence[Run], names: Sequence[str]) -> tuple[Law | None, str]:
    if runs[0].dim > _DENSE or any(run.draws < 2 for run in runs):
        return None, ""
    laws = [contents.exact_posterior(run) for run in runs]
    first = laws[0]
    if first is not None and all(law is not None and np.allclose(law.mean, first.mean) for law in laws):
        return first, "the exact posterior"
    return _moments(runs[0]), names[0]


def _moments(run: Run) -> Law:
    _, series = contents.series(run, range(run.dim))
    flat = series.reshape(-1, run.dim)
    return Law(flat.mean(0), np.atleast_2d(np.cov(flat, rowvar=False)))


def _entry(name: str, run: Run, target: Law | None, first: contents.Answers | None) -> Entry:
    summary = contents.summary_on_disk(run)
    ess = min((value for value in summary["parameters"]["ess_bulk"] if value is not None), default=None)
    answers = contents.answers(run) if first is not None else None
    same = first is not None and answers is not None and first.probabilities.shape == answers.probabilities.shape
    return Entry(
        name,
        run,
        summary,
        trust.checks(run, summary),
        ess,
        _rate(ess, _seconds(summary)),
        _rate(ess, summary["communication"] and summary["communication"]["bytes"] / 1e6),
        None if target is None or run.draws < 2 else gaussian_w2(_moments(run), target),
        total_variation(answers.probabilities, first.probabilities) if same and first and answers else None,
        agreement(answers.probabilities, first.probabilities) if same and first and answers else None,
    )


def _seconds(summary: dict[str, Any]) -> float | None:
    rate = summary["iterations_per_second"]
    return summary["iterations"] / rate if rate else None


def _rate(ess: float | None, cost: float | None) -> float | None:
    return ess / cost if ess is not None and cost and math.isfinite(cost) else None


def _pictures(entries: Sequence[Entry]) -> list[Picture]:
    parameters = {entry.name: entry.summary["parameters"] for entry in entries if entry.run.draws}
    found = []
    if parameters:
        columns = contents.worst(next(iter(parameters.values())), _LISTED)
        labels = [next(iter(parameters.values()))["name"][k] for k in columns]
        found.append(interval_picture(parameters, columns, labels, None))
    for key, title in (
        ("w2", "W2 distance"),
        ("ess_per_second", "effective draws a second"),
        ("ess_per_megabyte", "effective draws a megabyte sent"),
    ):
        known = [(entry.name, getattr(entry, key)) for entry in entries if getattr(entry, key) is not None]
        if known:
            names, values = zip(*known, strict=True)
            said = ", ".join(f"{name} {value:.3g}" for name, value in known)
            drawn = run_plots.bars(names, values, title)
            found.append(
                picture(drawn, key.replace("_", "-"), f"Bars: {title}. {said}", f"{title[0].upper()}{title[1:]}.")
            )
    return found
