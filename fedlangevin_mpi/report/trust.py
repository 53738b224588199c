"""Whether a run's draws can be trusted: what its diagnostics say, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from fedlangevin_mpi.store.reader import Run

R_HAT = 1.01
"""Above it chains disagree (Vehtari et al. 2021)."""
ESS_A_CHAIN = 100
"""Below it R-hat and standard errors are themselves not reliable (the same)."""

SETTLED = 0.05
"""Standard deviations by which particles' mean may move between the last two draws."""

_MOST_NOTES = 20
_NOTE = re.compile(r"^\S+ \S+ (WARNING|ERROR) (.*)$")


class Check(NamedTuple):
    """One reason to trust the draws, or not to.

    Attributes:
        name: of what was looked at.
        verdict: `good`, `doubtful`, or `unknown` where there is nothing to judge by.
        text: what was found.
    """

    name: str
    verdict: Literal["good", "doubtful", "unknown"]
    text: str


def checks(run: Run, summary: Mapping[str, Any]) -> list[Check]:
    """Return what a run's summary says about its draws."""
    if run.kept and not run.draws:
        text = "draws were averaged over and not stored: chains cannot be compared; look at the predictions alone"
        return [_ended(run), Check("draws", "unknown", text)]
    if run.particles:
        return [_ended(run), _settled(run)]
    parameters = summary["parameters"]
    return [_ended(run), _agreement(parameters, run.chains), _size(parameters, run), *_network(run, summary)]


def notes(directory: Path) -> list[str]:
    """Return the warnings and errors in the log of rank 0, such as a step size that is too large for a theorem."""
    try:
        lines = (directory / "log" / "rank-00000.log").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = [match[2] for line in lines if (match := _NOTE.match(line))]
    return list(dict.fromkeys(found))[:_MOST_NOTES]


def _ended(run: Run) -> Check:
    if run.statistics is None:
        return Check("end", "doubtful", f"the run has not ended: it is going on, or died; {run.kept:,} draws so far")
    return Check("end", "good", f"all {run.statistics.iterations:,} iterations were done; every state was finite")


def _settled(run: Run) -> Check:
    """Particles have no R-hat: see whether they still move."""
    if run.draws < 2 or run.chains < 2:
        return Check("settled", "unknown", "too few draws or particles to tell")
    before, after = run.average()[-2:].astype(np.float64)
    sd = after.std(axis=0)
    moved = np.abs(after.mean(axis=0) - before.mean(axis=0)) / np.where(sd > 0, sd, 1)
    worst = int(moved.argmax())
    text = f"the mean of {run.resolved.labels()[worst]} moved by {moved[worst]:.2g} sd since the draw before, at most"
    return Check("settled", "good" if moved[worst] <= SETTLED else "doubtful", text)


def _agreement(parameters: Mapping[str, Any], chains: int) -> Check:
    worst = _extreme(parameters, "r_hat", max)
    if worst is None:
        why = "one chain has nothing to agree with" if chains < 2 else "too few draws"
        return Check("R-hat", "unknown", f"{why}; take several chains")
    value, name = worst
    verdict: Literal["good", "doubtful"] = "good" if value <= R_HAT else "doubtful"
    return Check("R-hat", verdict, f"at most {value:.3f} ({name}); chains agree up to {R_HAT}")


def _size(parameters: Mapping[str, Any], run: Run) -> Check:
    worst = _extreme(parameters, "ess_bulk", min)
    if worst is None:
        return Check("effective draws", "unknown", "too few draws to tell")
    value, name = worst
    wanted = ESS_A_CHAIN * run.chains
    verdict: Literal["good", "doubtful"] = "good" if value >= wanted else "doubtful"
    common = "; chains share their coins, which is counted in" if run.coins == "shared" else ""
    return Check("effective draws", verdict, f"at least {value:,.0f} ({name}); {wanted} are enough{common}")


def _network(run: Run, summary: Mapping[str, Any]) -> Iterator[Check]:
    for topology in run.resolved.topologies:
        parts = len(topology.components)
        if parts > 1:
            text = f"{topology.path} falls into {parts} components; each samples a posterior of its own"
            yield Check("network", "doubtful", text)
        else:
            text = f"{topology.path} is connected, spectral gap {1 - max(topology.lambda_2, -topology.lambda_n):.3g}"
            yield Check("network", "good", text)
    distances = summary.get("consensus", {}).get("distance", [])
    if distances and None not in (distances[0], distances[-1]):
        late = distances[len(distances) // 2 :]
        grows = late[-1] > 2 * min(late)
        text = f"clients are {distances[-1]:.3g} off their average at last, {distances[0]:.3g} at first"
        yield Check("consensus", "doubtful" if grows else "good", text)


def _extreme(parameters: Mapping[str, Any], column: str, choose: Any) -> tuple[float, str] | None:
    pairs = zip(parameters[column], parameters["name"], strict=True)
    known = [(value, name) for value, name in pairs if value is not None]
    return choose(known, key=lambda pair: pair[0]) if known else None
