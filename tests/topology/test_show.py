import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.topology.generators import Complete, Disconnected, Ring
from fedlangevin_mpi.topology.graph import read_topology
from fedlangevin_mpi.topology.picture import draw_picture
from fedlangevin_mpi.topology.show import check_file, show

SHIPPED = Path(__file__).parents[2] / "topologies"


def values(text):
    """The two-column rows of a printed table."""
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines()]
    return {row[0]: row[1] for row in cells if len(row) == 2}


def test_show_prints_the_graph_and_its_spectrum(capsys):
    show(read_topology(SHIPPED / "star.yaml"), 5)
    text = capsys.readouterr().out
    assert text.startswith("star of 5 clients, weights metropolis")
    assert values(text) == {
        "edges": "4",
        "degree": "1 (4 clients), 4 (1 client)",
        "components": "1",
        "diameter": "2",
        "lambda_2": "0.8",
        "lambda_N": "0",
        "spectral gap": "0.2",
    }
    assert "0 ■ ● ● ● ●\n1 ● ■ · · ·\n" in text
    assert [cell.strip() for cell in text.splitlines()[-2].split("│")[1:-1]] == ["4", "0.2", "0", "0", "0", "0.8"]
    assert "warning" not in text


def test_show_warns_of_a_disconnected_graph(capsys):
    show(Disconnected(sizes=(2, 2)), 4)
    text = capsys.readouterr().out
    assert values(text)["diameter"] == "inf"
    assert "warning: the graph has 2 components" in text
    assert "clients 0-1 | 2-3." in " ".join(text.split())


def test_show_of_many_clients_leaves_matrices_out(capsys):
    show(Ring(), 100)
    assert "■" not in capsys.readouterr().out


def test_a_fixed_number_of_clients_needs_none_given(capsys):
    show(Disconnected(sizes=(2, 3)))
    assert "disconnected of 5 clients" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--clients: missing; allowed: 1, 2, ..., since topology ring fits many"):
        show(Ring())


def test_pictures_are_written_by_suffix(tmp_path, capsys):
    show(Ring(), 5, tmp_path / "ring.svg")
    assert "wrote" in capsys.readouterr().out
    assert ET.parse(tmp_path / "ring.svg").getroot().tag.endswith("svg")
    for topology, clients in ((Ring(), 1), (Disconnected(), 3), (Complete(), 60)):
        draw_picture(topology.graph(clients), np.eye(clients) + 1, tmp_path / "picture.png")
        assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"ring.pdf: allowed: a file name that ends in .png or .svg"):
        show(Ring(), 5, tmp_path / "ring.pdf")
    with pytest.raises(ConfigError, match=r"absent/ring.png: cannot be written: No such file"):
        show(Ring(), 5, tmp_path / "absent" / "ring.png")


def test_check_says_what_it_checked(capsys):
    check_file(SHIPPED / "de-sgld" / "disconnected.yaml", 6)
    text = capsys.readouterr().out
    assert "disconnected.yaml: correct: disconnected of 6 clients, weights metropolis, spectral gap 0, W is " in text
    assert "warning: the graph has 6 components" in text


def test_check_refuses_what_makes_no_mixing_matrix(tmp_path):
    (tmp_path / "pair.yaml").write_text("kind: path\nweights: {name: matrix, values: [[0.5, 0.6], [0.6, 0.5]]}")
    with pytest.raises(ConfigError, match=r"W: found a sum of 1.1 in row 0"):
        check_file(tmp_path / "pair.yaml", 2)
