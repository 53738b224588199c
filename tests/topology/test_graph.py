import math
from collections import Counter
from pathlib import Path

import networkx as nx
import pytest

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.topology.generators import (
    Barbell,
    Complete,
    Disconnected,
    ErdosRenyi,
    Exponential,
    Grid,
    Hypercube,
    PathGraph,
    Ring,
    Star,
    Torus,
)
from fedlangevin_mpi.topology.graph import (
    components,
    diameter,
    disconnection_warning,
    read_topology,
    topologies,
    without,
)
from fedlangevin_mpi.topology.listed import Edges

SHIPPED = Path(__file__).parents[2] / "topologies"


def edges(topology, clients):
    return sorted(tuple(sorted(edge)) for edge in topology.graph(clients).edges)


def degrees(topology, clients):
    return Counter(degree for _, degree in topology.graph(clients).degree)


def written(tmp_path, text):
    file = tmp_path / "topology.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("topology", "clients", "expected"),
    [
        (Ring(), 1, []),
        (Ring(), 2, [(0, 1)]),
        (Ring(), 4, [(0, 1), (0, 3), (1, 2), (2, 3)]),
        (PathGraph(), 1, []),
        (PathGraph(), 4, [(0, 1), (1, 2), (2, 3)]),
        (Star(), 1, []),
        (Star(), 2, [(0, 1)]),
        (Star(), 4, [(0, 1), (0, 2), (0, 3)]),
        (Complete(), 3, [(0, 1), (0, 2), (1, 2)]),
        (Grid(), 6, [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]),
        (Grid(columns=2), 6, [(0, 1), (0, 2), (1, 3), (2, 3), (2, 4), (3, 5), (4, 5)]),
        (Grid(rows=3), 6, [(0, 1), (0, 2), (1, 3), (2, 3), (2, 4), (3, 5), (4, 5)]),
        (Grid(), 3, [(0, 1), (1, 2)]),
        (Torus(), 1, []),
        (Torus(), 2, [(0, 1)]),
        (Torus(), 4, [(0, 1), (0, 2), (1, 3), (2, 3)]),
        (Hypercube(), 1, []),
        (Hypercube(), 4, [(0, 1), (0, 2), (1, 3), (2, 3)]),
        (Exponential(), 1, []),
        (Exponential(), 2, [(0, 1)]),
        (Exponential(), 6, [e for e in nx.complete_graph(6).edges if e not in [(0, 3), (1, 4), (2, 5)]]),
        (ErdosRenyi(probability=0.0), 5, []),
        (ErdosRenyi(probability=1.0), 5, list(nx.complete_graph(5).edges)),
        (Barbell(), 1, []),
        (Barbell(), 2, [(0, 1)]),
        (Barbell(), 5, [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)]),
        (Disconnected(), 3, []),
        (Disconnected(sizes=(2, 1, 3)), 6, [(0, 1), (3, 4), (3, 5), (4, 5)]),
        (Edges(clients=4, edges=((1, 0), (3, 1), (0, 1))), 4, [(0, 1), (1, 3)]),
    ],
    ids=lambda value: getattr(value, "kind", value) if not isinstance(value, list) else "",
)
def test_edges(topology, clients, expected):
    assert list(topology.graph(clients)) == list(range(clients))
    assert edges(topology, clients) == expected


def test_large_graphs_have_the_degrees_of_their_kind():
    assert degrees(Torus(), 16) == {4: 16}
    assert degrees(Grid(), 16) == {2: 4, 3: 8, 4: 4}
    assert degrees(Grid(rows=2), 16) == {2: 4, 3: 12}
    assert degrees(Hypercube(), 16) == {4: 16}
    assert degrees(Exponential(), 7) == {6: 7}  # 4 ahead is 3 behind
    assert degrees(Exponential(), 16) == {7: 16}  # +-1, +-2, +-4, and 8 both ways


def test_an_erdos_renyi_graph_comes_from_its_seed_with_its_probability():
    assert edges(ErdosRenyi(probability=0.3, seed=1), 20) == edges(ErdosRenyi(probability=0.3, seed=1), 20)
    assert edges(ErdosRenyi(probability=0.3, seed=1), 20) != edges(ErdosRenyi(probability=0.3, seed=2), 20)
    found, pairs = len(edges(ErdosRenyi(probability=0.3), 200)), 200 * 199 / 2
    assert abs(found - 0.3 * pairs) < 4 * math.sqrt(0.3 * 0.7 * pairs)


def test_an_erdos_renyi_graph_is_drawn_again_until_it_is_connected():
    isolated = [seed for seed in range(10) if len(components(ErdosRenyi(probability=0.3, seed=seed).graph(8))) > 1]
    assert isolated
    for seed in isolated:
        assert nx.is_connected(ErdosRenyi(probability=0.3, seed=seed, connected=True).graph(8))


@pytest.mark.parametrize(
    ("topology", "clients", "message"),
    [
        (Hypercube(), 6, "topology hypercube: found 6 clients; allowed: a power of two, as 4 or 8"),
        (Grid(rows=4), 6, "topology grid: rows: found 4 for 6 clients; allowed: a divisor"),
        (Torus(columns=4), 6, "topology torus: columns: found 4 for 6 clients; allowed: a divisor"),
        (Torus(rows=2, columns=3), 8, "topology torus: found 8 clients; allowed: 6"),
        (Disconnected(sizes=(2, 3)), 6, "topology disconnected: found 6 clients; allowed: 5"),
        (Edges(clients=3, edges=((0, 1),)), 4, "topology edges: found 4 clients; allowed: 3"),
        (ErdosRenyi(probability=0.0, connected=True), 2, "found none connected among 1000 draws with probability 0"),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_a_number_of_clients_that_does_not_fit_is_refused(topology, clients, message):
    with pytest.raises(ConfigError, match=message):
        topology.graph(clients)


def test_every_kind_is_found_and_shipped():
    assert {*topologies()} == {
        *("ring", "path", "star", "complete", "grid", "torus", "hypercube", "exponential", "erdos_renyi", "barbell"),
        *("disconnected", "edges", "file"),
    }
    shipped = {read_topology(file).kind for file in SHIPPED.rglob("*.yaml")}
    assert {*topologies()} - shipped == {"edges", "file"}
    assert all(kind.summary for kind in topologies().values())


def test_the_networks_of_the_de_sgld_paper():
    kinds = {file.stem: read_topology(file).kind for file in (SHIPPED / "de-sgld").iterdir()}
    assert kinds == {"fully-connected": "complete", "circular": "ring", "disconnected": "disconnected"}


def test_weights_are_a_name_or_a_mapping(tmp_path):
    assert read_topology(written(tmp_path, "kind: ring")).weights.name == "metropolis"
    assert read_topology(written(tmp_path, "kind: ring\nweights: max_degree")).weights.name == "max_degree"
    floor = read_topology(written(tmp_path, "kind: ring\nweights: {name: fastest_mixing, floor: 1e-3}")).weights.floor
    assert floor == 1e-3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "kind: missing; allowed: barbell, complete, "),
        ("kind: rng", r"kind: found 'rng' \(did you mean ring\?\); allowed: barbell, "),
        ("kind: [ring]", "kind: found .'ring'. .*; allowed: barbell"),
        ("- ring", "found list; allowed: a mapping"),
        ("kind: ring\nrows: 2", "rows: unknown key; allowed: kind, weights"),
        ("kind: grid\nrow: 2", r"row: unknown key \(did you mean rows\?\)"),
        ("kind: grid\nrows: 0", "rows: found 0; allowed: greater than or equal to 1"),
        ("kind: erdos_renyi", "probability: missing"),
        ("kind: ring\nweights: metropols", "weights.name: found 'metropols'; allowed: 'metropolis', "),
        ("kind: ring\nweights: {floor: 1}", "weights.name: missing; allowed: fastest_mixing, lazy_metropolis, matrix"),
        ("kind: ring\nweights: matrix", "weights: found neither path nor values"),
        ("kind: ring\nweights: {name: matrix, path: w.npy, values: [[1]]}", "weights: found both path and values"),
        ("kind: ring\nweights: {name: matrix, values: [[1], [1, 2]]}", "weights: values: found rows of .1, 2. numbers"),
        ("kind: ring\nweights: {name: matrix, path: w.txt}", "weights.path: found 'w.txt'; allowed: .* .npy or .csv"),
        ("kind: ring\nweights: {name: fastest_mixing, floor: 0}", "weights.floor: found 0; allowed: greater than 0"),
        ("kind: ring\nweights: {name: fastest_mixing, flor: 1}", r"weights.flor: unknown key \(did you mean floor\?\)"),
        ("kind: edges\nclients: 2\nedges: [[0, 2]]", r"edges.0: found \[0, 2\]; allowed: clients 0 to 1"),
        ("kind: edges\nclients: 2\nedges: [[0, 1], [1, 1]]", r"edges.1: found \[1, 1\]; allowed: two clients"),
        ("kind: edges\nclients: 2\nedges: [[0, 1, 2]]", "edges.0: found .0, 1, 2.; allowed: .*at most 2 items"),
        ("kind: edges\nclients: 2\nedges: [[0, -1]]", "edges.0.1: found -1; allowed: greater than or equal to 0"),
        (
            "kind: edges\nclients: 2\nedges: [[0, 1]]\nedge_weights: [2]",
            "edge_weights: found beside weights metropolis; allowed: with weights sinkhorn",
        ),
        (
            "kind: edges\nclients: 2\nedges: [[0, 1]]\nself_weights: [2]\nweights: sinkhorn",
            "self_weights: found 1; allowed: 2, one a client",
        ),
        ("kind: file\npath: graph.gml", "path: found 'graph.gml'; allowed: .* .graphml, .edgelist, .adjlist"),
    ],
)
def test_a_wrong_file_is_refused_with_key_found_and_allowed(tmp_path, text, message):
    with pytest.raises(ConfigError, match=f"topology.yaml: {message}"):
        read_topology(written(tmp_path, text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.yaml: No such file"):
        read_topology(tmp_path / "absent.yaml")


def test_components_and_diameter():
    assert components(Disconnected(sizes=(2, 3)).graph(5)) == [[0, 1], [2, 3, 4]]
    assert diameter(Ring().graph(9)) == 4
    assert diameter(Ring().graph(1)) == 0
    assert diameter(Disconnected().graph(2)) == math.inf


def test_the_warning_names_the_components_of_a_disconnected_graph_alone():
    assert disconnection_warning(Ring().graph(5)) is None
    graph = Edges(clients=6, edges=((0, 1), (1, 2), (2, 5))).graph(6)
    assert "has 3 components, and nothing passes between them: clients 0-2, 5 | 3 | 4." in disconnection_warning(graph)
    assert "clients 0 | 1 | and 98 more." in disconnection_warning(Disconnected().graph(100), most=2)


def test_a_graph_without_some_clients_keeps_the_edges_of_the_others():
    ring = nx.cycle_graph(5)
    ring.nodes[3]["weight"] = 2.0
    smaller = without(ring, [1])
    assert sorted(map(sorted, smaller.edges)) == [[0, 3], [1, 2], [2, 3]]  # clients 2-3, 3-4, 4-0
    assert smaller.nodes[2]["weight"] == 2.0


def test_clients_without_whom_the_graph_falls_apart_are_refused():
    with pytest.raises(ConfigError, match=r"dropped_clients: found \[0, 2\].*2 components, clients 1 \| 3-4"):
        without(nx.cycle_graph(5), [0, 2])
