"""Reading a run's folder: finished, killed, or still going. Needs no MPI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlangevin_mpi.errors import ConfigError, StoreError
from fedlangevin_mpi.store import layout, segments
from fedlangevin_mpi.store.checkpoint_files import PREDICTIVE, last_arrays
from fedlangevin_mpi.store.draws import Draws
from fedlangevin_mpi.store.metadata import CHECKPOINTS, Statistics, read_run_file, read_statistics

if TYPE_CHECKING:
    from fedlangevin_mpi.evaluate.predictive import Predictive
    from fedlangevin_mpi.evaluate.running import Averaged

Array = np.ndarray[Any, np.dtype[Any]]

_READ_BYTES = 16 << 20


class Run:
    """A run as it stood when it was opened: draws that are committed later show in another `open_run`.

    Attributes:
        directory: the run's folder.
        config: the full config, all defaults filled in.
        resolved: what the ranks agreed on.
        statistics: of the whole run; None while it is going, or where it was killed.
        algorithm: its name.
        seed: of the run.
        coins: `shared`: the chains took the same coins and are not independent; else `per_chain` or `none`.
        clients: how many clients take part in the run.
        dropped: the numbers of those that do not, or not any more.
        chains: or particles.
        particles: whether chains are particles: a draw is a whole approximation of the posterior, and the last one
            counts. They are the server's state, without the coins of chains that a server deals out.
        dim: of a position.
        draws: how many stored draws are whole on every rank; 0 with `output.store: predictive`.
        kept: the same of all draws that were kept, stored or only averaged.
        files: the draw files, by segment and rank.
        owners: the clients that have draws; of a particle method, the server alone (-1).
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config, self.resolved = read_run_file(directory)
        self.statistics: Statistics | None = read_statistics(directory)
        headers = segments.headers(directory, self.resolved.first_segment)
        first = headers[0]
        self._headers = headers
        self.files = [header.path for header in headers]
        self.algorithm, self.seed, self.coins = first.algorithm, first.seed, first.coins
        self.dropped: list[int] = list(self.config.get("dropped_clients") or ())
        self.clients = self.resolved.clients - len(self.dropped)
        self.chains, self.dim = first.chains, first.dim
        if self.dim != self.resolved.dim:
            raise StoreError(f"{first.path}: positions have dim {self.dim}, but run.yaml says {self.resolved.dim}")
        self._dtype = first.dtype
        of_server = layout.SERVER in first.clients
        self.particles = of_server and self.coins == "none"
        self.owners = [layout.SERVER] if of_server else sorted(set(range(self.resolved.clients)) - set(self.dropped))
        self._segments = segments.segments(headers, self.owners, self.resolved.first_segment)
        self.kept = sum(segment.draws for segment in self._segments)
        self._stored = self._segments if first.positions else []
        self.draws = sum(segment.draws for segment in self._stored)

    @property
    def iterations(self) -> Array:
        """`(kept,)`: the 0-based iteration after which each draw was kept."""
        return np.concatenate([segment.iterations() for segment in self._segments])

    def position(self, client: int) -> Draws:
        """Return the draws of one client, `(draw, chain, dim)`; of a particle method, `client=-1`.

        Raises:
            ConfigError: no such client.
        """
        if client not in self.owners:
            allowed = f"{self.owners[0]} to {self.owners[-1]}" if len(self.owners) > 1 else str(self.owners[0])
            allowed += f" without {self.dropped}" if self.dropped else ""
            raise ConfigError(f"client {client} has no draws in {self.directory}; allowed: {allowed}")
        return Draws(self._stored, [client], self.chains, self.dim, self._dtype)

    def average(self) -> Draws:
        """Return the draws of the average over clients, `(draw, chain, dim)`."""
        return Draws(self._stored, self.owners, self.chains, self.dim, self._dtype)

    def natural_parameters(self) -> Array:
        """Return the natural parameters of every draw's Gaussian, of PVI and GVI.

        Returns:
            `(draw, 1 + d, d)`: `eta_1` and, below it, `eta_2`; of mean field `(draw, 2, d)` with its diagonal.

        Raises:
            StoreError: the run has none.
        """
        if not self._stored:
            raise StoreError(no_draws(self))
        return np.concatenate([segment.read(layout.NATURAL) for segment in self._stored])

    def predictive(self) -> Averaged | None:
        """Return the posterior predictive of the held-out rows that the run averaged over its draws as it made them.

        It is of the last checkpoint, which a run writes at its end, too.

        Returns:
            None: the run has `output.store: draws`, or no checkpoint with a draw yet.
        """
        from fedlangevin_mpi.evaluate.running import averaged

        found = last_arrays(self.directory / CHECKPOINTS, self.owners, PREDICTIVE)
        return None if found is None else averaged(*found)

    def view(self, client: int | None = None) -> Draws:
        """Return the average, or one client's draws where one is named.

        Raises:
            ConfigError: no such client.
        """
        return self.average() if client is None else self.position(client)

    def newest_files(self) -> list[tuple[Path, int, tuple[int, ...]]]:
        """Return the draw files that a run writes now, or wrote last: path, whole draws, clients."""
        last = max(header.segment for header in self._headers)
        return [(h.path, h.committed, h.clients) for h in self._headers if h.segment == last]

    def consensus_distance(self, draws: range | None = None) -> Array:
        """Return how far clients are from their average, `sqrt(mean |x_i - mean_j x_j|^2)` over clients and chains.

        Args:
            draws: of which draws, growing; None: of all.

        Returns:
            `(draw,)`.
        """
        wanted = range(self.draws) if draws is None else draws
        piece = max(1, _READ_BYTES // max(1, 8 * self.chains * self.dim))
        parts = [self._squared_distance(wanted[k : k + piece]) for k in range(0, len(wanted), piece)]
        return np.asarray(np.sqrt(np.concatenate([np.empty(0), *parts])))

    def _squared_distance(self, draws: range) -> Array:
        where = slice(draws.start, draws.stop, draws.step)
        average = self.average()[where].astype(np.float64)
        squares = [np.square(self.position(client)[where] - average).sum(-1).mean(-1) for client in self.owners]
        return np.asarray(np.mean(squares, axis=0))

    def named(self, client: int | None = None) -> dict[str, Array]:
        """Return the draws of every parameter, `(chain, draw, *shape)`, read into memory.

        Args:
            client: None: of the average over clients.

        Raises:
            ConfigError: no such client.
        """
        return self.resolved.named(self.view(client)[:])

    def to_arviz(self, client: int | None = None) -> Any:
        """Return the draws as ArviZ has them: an InferenceData in ArviZ 0.x, a DataTree from 1.0 on."""
        from fedlangevin_mpi.store.export import to_arviz

        return to_arviz(self, client)

    def summary(self, client: int | None = None, predictive: Predictive | None = None) -> dict[str, Any]:
        """Return what `summary.json` holds; see `evaluate.summary.summarise`."""
        from fedlangevin_mpi.evaluate.summary import summarise

        return summarise(self, client, predictive)

    def plot_trace(self, count: int = 6) -> Any:
        """Return a Matplotlib figure: the traces of the `count` parameters with the largest R-hat, a line a chain."""
        from fedlangevin_mpi.report.quick import trace_figure

        return trace_figure(self, count)

    def plot_reliability(self) -> Any:
        """Return a Matplotlib figure: accuracy against confidence of the held-out rows' predictions.

        Raises:
            ConfigError: the run has no held-out rows, or its model predicts no classes.
        """
        from fedlangevin_mpi.report.quick import reliability_figure

        return reliability_figure(self)

    def _repr_html_(self) -> str:
        from fedlangevin_mpi.report.html import fragment

        return fragment(self)

    def __repr__(self) -> str:
        draws = f"{self.draws} draws" if self._stored else f"{self.kept} draws averaged"
        shape = f"{draws}, {self.clients} clients, {self.chains} chains, dim {self.dim}"
        return f"Run({str(self.directory)!r}: {self.algorithm}, {shape})"


def no_draws(run: Run) -> str:
    """Return what to say of a run where draws are needed and it has none."""
    stored = run.config.get("output", {}).get("store")
    why = ": output.store is predictive, so positions were averaged over and not kept" if stored == "predictive" else ""
    return f"{run.directory}: has no draws{why or ' yet'}"


def open_run(directory: str | Path) -> Run:
    """Open a run's folder.

    Raises:
        StoreError: a file of it is missing, unreadable, or belongs to another run; its text names the file.
    """
    return Run(Path(directory))
