"""The page of one run: is it to be trusted, what is the posterior, how do clients differ, what did it cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import networkx as nx
import numpy as np
from scipy.stats import entropy

from fedlangevin_mpi.config import to_yaml
from fedlangevin_mpi.errors import FedLangevinError
from fedlangevin_mpi.evaluate.predictive import reliability
from fedlangevin_mpi.evaluate.recursion import Law
from fedlangevin_mpi.report import contents, posterior_plots, run_plots, trust
from fedlangevin_mpi.report.ink import Picture, inked, picture
from fedlangevin_mpi.topology import read_topology, without

if TYPE_CHECKING:
    from fedlangevin_mpi.store.reader import Run

Array = np.ndarray[Any, np.dtype[Any]]

_TRACED = 6
_LISTED = 40
_PAIRED = 5
_COMPARED = 10


class RunPage(NamedTuple):
    """What the template `run.html` shows."""

    run: Run
    summary: dict[str, Any]
    checks: list[trust.Check]
    notes: list[str]
    listed: list[int]
    exact: Law | None
    exact_average: dict[str, Any] | None
    posterior: list[Picture]
    clients: list[Picture]
    predictions: list[Picture]
    config: str
    placement: list[tuple[str, str]]


def run_page(run: Run) -> RunPage:
    """Gather a run's page.

    Raises:
        StoreError: a file of the run cannot be read.
    """
    summary = contents.summary_on_disk(run)
    listed = contents.worst(summary["parameters"], _LISTED)
    exact = contents.exact_posterior(run)
    with inked():
        return RunPage(
            run=run,
            summary=summary,
            checks=trust.checks(run, summary),
            notes=trust.notes(run.directory),
            listed=listed,
            exact=exact,
            exact_average=contents.exact_average(run),
            posterior=list(_posterior(run, summary, listed, exact)) if run.draws else [],
            clients=list(_clients(run, summary, listed, exact)) if run.draws else [],
            predictions=list(_predictions(run)),
            config=to_yaml(run.config),
            placement=_placement(run),
        )


def _posterior(run: Run, summary: Mapping[str, Any], listed: Sequence[int], law: Law | None) -> Iterator[Picture]:
    parameters = summary["parameters"]
    labels = [parameters["name"][k] for k in listed]
    known = None if law is None else (law.mean[listed], np.sqrt(np.diag(law.covariance))[listed])
    yield interval_picture({run.algorithm: parameters}, listed, labels, known)
    columns = contents.worst(parameters, _TRACED)
    iterations, series = contents.series(run, columns)
    names = [parameters["name"][k] for k in columns]
    who = "particle" if run.particles else "chain"
    which = "" if len(columns) == run.dim else f" of {len(columns)} parameters, those with the largest R-hat first"
    about = f"{len(names)} parameters, {run.chains} {who}s, {run.draws} draws: {', '.join(names)}"
    yield picture(
        posterior_plots.trace(iterations, series, names),
        "trace",
        f"Traces over the iterations. {about}",
        f"Trace{which}, a line a {who}.",
    )
    if run.particles:  # the last draw is the posterior, the others are its history
        series = series[-1:]
        yield picture(
            posterior_plots.histograms(series[0], names),
            "histograms",
            f"Histograms of the particles. {about}",
            "Particles after the last global iteration.",
        )
    elif run.chains > 1 and len(series) > 1:
        yield picture(
            posterior_plots.ranks(series, names),
            "ranks",
            f"Histograms of the ranks of each chain's draws among all. {about}",
            f"Ranks{which}: each chain's line is near 1 everywhere where chains agree.",
        )
    if 2 <= run.dim <= _PAIRED and series[:, :, 0].size > 1:
        yield picture(
            posterior_plots.pairs(series, names),
            "pairs",
            f"Scatter plots of all pairs. {about}",
            "Pairs of parameters.",
        )


def interval_picture(
    runs: Mapping[str, Mapping[str, Sequence[Any]]], columns: Sequence[int], labels: Sequence[str], exact: Any
) -> Picture:
    """Return the picture of means and intervals, one mark a run; its alternative text holds the means."""
    rows = {
        run: {name: [values[name][k] for k in columns] for name in ("mean", "hdi_low", "hdi_high")}
        for run, values in runs.items()
    }
    first = next(iter(rows.values()))["mean"]
    means = ", ".join(f"{label} {mean:.3g}" for label, mean in zip(labels, first, strict=True) if mean is not None)
    beside = "" if exact is None else " The exact posterior's interval is beside it, in grey."
    return picture(
        posterior_plots.intervals(rows, labels, exact),
        "intervals",
        f"Posterior means and intervals of {', '.join(rows)}. Means of the first: {means}",
        f"Mean and 94 % highest density interval of each parameter.{beside}",
    )


def _clients(run: Run, summary: Mapping[str, Any], listed: Sequence[int], law: Law | None) -> Iterator[Picture]:
    if len(run.owners) < 2:
        return
    listed = listed[:_COMPARED]
    centre, sd = (np.array([summary["parameters"][name][k] for k in listed], float) for name in ("mean", "sd"))
    of = "the average over clients"
    if law is not None:
        centre, sd, of = law.mean[listed], np.sqrt(np.diag(law.covariance))[listed], "the exact posterior mean"
    errors = contents.client_offsets(run, listed, centre, np.nan_to_num(sd))
    title = "distance, posterior sd"
    farthest = run.owners[int(np.argmax(errors))]
    alternative = f"Client {farthest} is farthest, {errors.max():.3g}; the mean over clients is {errors.mean():.3g}."
    caption = f"How far each client's mean is from {of}: root mean square over parameters, in posterior sd."
    graph = _graph(run)
    if graph is None:
        yield picture(run_plots.agents(run.owners, errors, title), "clients", f"A bar a client. {alternative}", caption)
    else:
        edges = graph.number_of_edges()
        text = f"Graph of {len(graph)} clients and {edges} edges, clients coloured by distance. {alternative}"
        drawn = run_plots.network(graph, run.owners, errors, title)
        yield picture(drawn, "network", text, f"The clients' graph. {caption}")
    if "consensus" in summary:
        seen = summary["consensus"]
        yield picture(
            run_plots.consensus(seen["iteration"], seen["distance"]),
            "consensus",
            f"Consensus distance over the iterations, {seen['distance'][-1]:.3g} at last.",
            "Consensus: root mean square distance of clients from their average.",
        )


def _graph(run: Run) -> nx.Graph | None:
    """Return the (first) graph of a run that gossips, where its file can still be read."""
    try:
        if not run.resolved.topologies:
            return None
        return without(read_topology(run.resolved.topologies[0].path).graph(run.resolved.clients), run.dropped)
    except FedLangevinError:
        return None


def _predictions(run: Run) -> Iterator[Picture]:
    found = contents.answers(run)
    if found is None:
        return
    table = reliability(found.probabilities, found.y)
    bins = [f"{c:.2f}: {a:.2f}" for c, a in zip(table.confidence, table.accuracy, strict=True) if np.isfinite(c)]
    yield picture(
        run_plots.reliability(table),
        "reliability",
        f"Reliability diagram of {len(found.y)} held-out rows. Confidence: accuracy; {', '.join(bins)}",
        "Reliability of the posterior predictive on held-out rows: on the diagonal, confidence is accuracy.",
    )
    values = entropy(found.probabilities, axis=1)
    right = found.probabilities.argmax(axis=1) == found.y
    middle = [
        f"{name} {np.median(v):.2f}" for name, v in (("right", values[right]), ("wrong", values[~right])) if len(v)
    ]
    yield picture(
        run_plots.entropy(values, right),
        "entropy",
        f"Histogram of the predictive entropy. Medians in nats: {', '.join(middle)}",
        "Predictive entropy of held-out rows: wrong predictions should be the uncertain ones.",
    )


def _placement(run: Run) -> list[tuple[str, str]]:
    resolved = run.resolved
    rows = [("folder", str(run.directory)), ("started", resolved.started or "not known")]
    rows += [("seed", str(run.seed)), ("coins", run.coins), ("dtype", resolved.dtype)]
    rows += [("ranks", str(resolved.ranks)), ("hosts", ", ".join(dict.fromkeys(resolved.hosts)) or "not known")]
    return rows + [(f"{name} version", version) for name, version in resolved.versions.items()]
