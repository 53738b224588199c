"""The tutorials work as they stand: their files are written, their commands and programs run, in their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedlangevin_mpi.store.reader import open_run

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)


def follow(tutorial: str, folder: Path) -> str:
    """Do what a tutorial says in an empty folder and return all that was printed."""
    text = (TUTORIALS / f"{tutorial}.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert text.count("```") == 2 * len(blocks)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    printed = ""
    for language, title, content in blocks:
        if title:
            (folder / title).write_text(content)
            continue
        program = {"bash": ["bash", "-euc", content], "python": [sys.executable, "-c", content]}[language]
        done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        printed += done.stdout
    return printed


def test_on_a_laptop(tmp_path):
    printed = follow("laptop", tmp_path)
    assert "accuracy" in printed
    assert open_run(tmp_path / "runs" / "vr_fald").draws == 700
    assert (tmp_path / "comparison.html").stat().st_size > 10_000
    assert (tmp_path / "titanic.nc").exists()


def test_with_your_own_data(tmp_path):
    assert "vr_fald, 3 clients, 3 ranks" in follow("own-data", tmp_path)
    assert open_run(tmp_path / "runs" / "clinics").draws == 1400


def test_without_a_server(tmp_path):
    printed = follow("decentralised", tmp_path)
    assert "the theorem holds below" in printed
    assert (tmp_path / "ring.svg").exists()
    assert (tmp_path / "runs" / "ring" / "report.html").exists()
    assert open_run(tmp_path / "runs" / "tracking").algorithm == "gradient_tracking"


def test_with_your_own_network(tmp_path):
    pytest.importorskip("torch")
    assert "accuracy" in follow("own-network", tmp_path)
    assert open_run(tmp_path / "runs" / "particles").particles


def test_every_tutorial_is_followed():
    tested = {"laptop", "own-data", "own-network", "decentralised", "slurm"}  # (slurm: tests/slurm)
    assert {path.stem for path in TUTORIALS.glob("*.md")} == tested


@pytest.mark.skipif(not __import__("importlib.util").util.find_spec("mkdocs"), reason="mkdocs is not installed")
def test_the_site_is_made_without_a_warning(tmp_path):
    root = TUTORIALS.parents[1]
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)
    page = (tmp_path / "site" / "samplers" / "fald" / "index.html").read_text()
    assert "communication_probability" in page
    assert "sqrt(1 - tau)" in page
