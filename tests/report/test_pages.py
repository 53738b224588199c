"""Pages as programs see them: every figure has its words, every value is escaped, nothing is asked of a network."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import networkx as nx
import numpy as np
import pytest

from fedlangevin_mpi.errors import ConfigError, FedLangevinError, StoreError
from fedlangevin_mpi.report import contents, run_plots
from fedlangevin_mpi.report.comparison import comparison
from fedlangevin_mpi.report.html import write_report
from fedlangevin_mpi.report.run_page import run_page
from tests.report.conftest import RING, sampled


class Page(HTMLParser):
    """A page's tags and attributes, and the text of its cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = text
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def page(*directories, tmp_path) -> Page:
    return Page(write_report(list(directories), tmp_path / "page.html").read_text())


def well_made(found: Page) -> None:
    assert len(found.of("svg")) == len(found.of("figure")) == len(found.of("figcaption")) > 0
    for svg in found.of("svg"):
        assert svg["role"] == "img"
        assert len(svg["aria-label"]) > 20
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for a in found.of("a") if a["href"].startswith("#")}
    assert targets <= set(ids)
    uses = set(re.findall(r"url\(#([^)]+)\)", found.text)) | {u["xlink:href"][1:] for u in found.of("use")}
    assert uses
    assert uses <= set(ids)
    assert not found.of("script")
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", found.text.replace('xmlns:xlink="http://', ""))
    assert "#010203" not in found.text


@pytest.mark.parametrize(("name", "figures"), [("fald", 7), ("ring", 6), ("dsvgd", 3)])
def test_a_runs_page_has_its_figures_with_their_words(runs, tmp_path, name, figures):
    found = page(runs[name].directory, tmp_path=tmp_path)
    well_made(found)
    assert len(found.of("figure")) == figures


@pytest.mark.parametrize("gossips", [False, True])
def test_clients_keep_their_numbers_where_others_are_left_out(tmp_path, gossips, monkeypatch):
    drawn, name = [], "network" if gossips else "agents"
    plot = getattr(run_plots, name)

    def noted(*arguments):
        drawn.append(arguments[-3])
        return plot(*arguments)

    monkeypatch.setattr(run_plots, name, noted)
    gossip = {"algorithm": {"name": "de_sgld", "step_size": 0.05}, "topology": RING}
    average = {"algorithm": {"name": "fald", "step_size": 0.05, "communication_probability": 0.5}}
    data = {"model": {"name": "gaussian"}, "data": {"name": "synthetic_gaussian", "dim": 2}}
    run = sampled(tmp_path / "run", clients=5, dropped_clients=[0], **data, **(gossip if gossips else average))
    law = contents.exact_posterior(run)
    offsets = contents.client_offsets(run, [0, 1], law.mean, np.sqrt(np.diag(law.covariance)))
    farthest = [1, 2, 3, 4][int(np.argmax(offsets))]
    assert f"Client {farthest} is farthest, {offsets.max():.3g};" in run_page(run).clients[0].svg
    assert drawn == [[1, 2, 3, 4]]


def test_pictures_of_clients_say_their_numbers():
    numbers, errors = [1, 3, 4], np.array([0.1, 0.3, 0.2])
    texts = run_plots.network(nx.path_graph(3), numbers, errors, "distance").axes[0].texts
    assert [text.get_text() for text in texts] == ["1", "3", "4"]
    bars = run_plots.agents(numbers, errors, "distance").axes[0].patches
    assert [bar.get_x() + bar.get_width() / 2 for bar in bars] == pytest.approx(numbers)


def test_a_comparison_has_a_column_a_run(runs, tmp_path):
    found = page(runs["fald"].directory, runs["vr_fald"].directory, tmp_path=tmp_path)
    well_made(found)
    compared = comparison([runs["fald"], runs["vr_fald"]])
    assert [entry.name for entry in compared.entries] == ["fald", "vr <b>"]
    first, second = compared.entries
    assert (first.w2, first.tv, first.agreement) == (pytest.approx(0, abs=1e-6), 0, 1)
    assert 0 < second.w2 < 1
    assert 0 < second.tv < 0.1
    assert second.ess_per_second == pytest.approx(
        second.ess / (400 / second.summary["iterations_per_second"])  # 400 iterations
    )
    assert "vr <b>" not in found.text
    assert "vr &lt;b&gt;" in found.text


def test_a_comparison_of_gaussian_runs_is_with_the_exact_posterior(runs):
    compared = comparison([runs["ring"], runs["ring"]])
    law, draws = contents.exact_posterior(runs["ring"]), runs["ring"].average()[:].reshape(-1, 2)
    assert compared.w2_to == "the exact posterior"
    off = draws.mean(0) - law.mean
    spread = np.sqrt(np.diag(law.covariance)) - draws.std(0, ddof=1)
    # In one dimension a Gaussian's W2 is the distance of (mean, sd); correlations add little here.
    assert compared.entries[0].w2 == pytest.approx(np.sqrt(off @ off + spread @ spread), rel=0.2)


def test_runs_of_different_models_are_not_compared(runs, tmp_path):
    with pytest.raises(FedLangevinError, match="has other parameters"):
        write_report([runs["fald"].directory, runs["ring"].directory], tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_what_a_config_holds_is_shown_as_text(make_run, tmp_path):
    nasty = "<script>alert(1)</script>"
    folder = make_run(np.random.default_rng(0).normal(size=(50, 2, 2, 1)), parameters={f"{nasty}$x^$": [1]})
    (folder / "log").mkdir()
    (folder / "log" / "rank-00000.log").write_text(f"2026-01-01 00:00:00,000 WARNING {nasty}\n")
    found = page(folder, tmp_path=tmp_path)
    well_made(found)
    assert found.text.count("&lt;script&gt;alert(1)") >= 4
    assert "<script" not in found.text


def test_an_exact_law_stands_beside_the_estimate(runs):
    shown = run_page(runs["ring"])
    assert shown.exact is not None
    assert shown.exact_average["w2"] > 0
    means = shown.summary["parameters"]["mean"]
    sd = np.sqrt(np.diag(shown.exact_average["covariance"]))
    error = np.array(means) - shown.exact_average["mean"]
    assert (np.abs(error) < 0.5 * sd).all()
    assert run_page(runs["fald"]).exact is None


@pytest.mark.parametrize("draws", [0, 1])
@pytest.mark.parametrize("chains", [1, 2])
def test_a_run_with_hardly_a_draw_has_a_page(make_run, tmp_path, draws, chains):
    folder = make_run(np.ones((draws, 2, chains, 1)), parameters={"x": [1]})
    (folder / "statistics.json").unlink()  # it died
    text = page(folder, tmp_path=tmp_path).text
    assert "the run has not ended" in text
    assert ("There is no draw yet" in text) == (draws == 0)


def test_a_long_position_is_shown_in_part(make_run, tmp_path):
    positions = np.random.default_rng(0).normal(size=(6, 1, 2, 60_000)).astype(np.float32)
    folder = make_run(positions, parameters={"weights": [300, 200]})
    (folder / "statistics.json").unlink()
    found = page(folder, tmp_path=tmp_path)
    assert "40 of 60,000 parameters" in found.text
    assert len(found.text) < 3e6


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(StoreError, match="holds no run"):
        write_report([tmp_path])


def test_a_run_is_looked_at_from_python(runs):
    assert "fald" in runs["fald"]._repr_html_()
    assert len(runs["fald"].plot_trace(2).axes) == 2
    assert runs["fald"].plot_reliability().axes[0].get_ylabel() == "accuracy"
    with pytest.raises(ConfigError, match="has no predictions of held-out rows"):
        runs["ring"].plot_reliability()
