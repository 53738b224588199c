import networkx as nx
import pytest

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.topology.graph import read_topology
from fedlangevin_mpi.topology.listed import Edges, GraphFile

KITE = nx.Graph([(0, 1), (1, 2), (0, 2), (2, 3)])


def graph_of(file):
    (file.parent / "topology.yaml").write_text(f"kind: file\npath: {file.name}\nweights: sinkhorn")
    topology = read_topology(file.parent / "topology.yaml")
    return topology.graph(topology.fixed_clients())


def text_file(tmp_path, text, suffix):
    (tmp_path / f"graph{suffix}").write_text(text)
    return tmp_path / f"graph{suffix}"


@pytest.mark.parametrize(
    ("write", "suffix"),
    [(nx.write_graphml, ".graphml"), (nx.write_edgelist, ".edgelist"), (nx.write_adjlist, ".adjlist")],
)
def test_what_networkx_writes_is_read_back(tmp_path, write, suffix):
    write(KITE, tmp_path / f"graph{suffix}")
    graph = graph_of(tmp_path / f"graph{suffix}")
    assert list(graph) == [0, 1, 2, 3]
    assert nx.utils.edges_equal(graph.edges, KITE.edges)


def test_weights_are_read_from_graphml_and_from_both_forms_of_an_edge_list(tmp_path):
    weighted = nx.Graph()
    weighted.add_weighted_edges_from([(0, 1, 2.5), (1, 2, 0.5), (1, 1, 3.0)])
    for write, name in (
        (nx.write_graphml, "a.graphml"),
        (nx.write_edgelist, "b.edgelist"),
        (nx.write_weighted_edgelist, "c.edgelist"),
    ):
        write(weighted, tmp_path / name)
        graph = graph_of(tmp_path / name)
        assert dict(graph.edges) == {(0, 1): {"weight": 2.5}, (1, 2): {"weight": 0.5}}
        assert dict(graph.nodes(data="weight")) == {0: None, 1: 3.0, 2: None}


def test_an_edge_list_without_weights_has_comments_and_edges_both_ways(tmp_path):
    graph = graph_of(text_file(tmp_path, "# a triangle\n0 1\n1 0\n1 2\n2 0\n", ".edgelist"))
    assert dict(graph.edges) == {edge: {"weight": 1.0} for edge in ((0, 1), (0, 2), (1, 2))}


def test_an_adjacency_list_may_name_an_isolated_node(tmp_path):
    graph = graph_of(text_file(tmp_path, "0 1\n2\n", ".adjlist"))
    assert (list(graph), list(graph.edges)) == ([0, 1, 2], [(0, 1)])


def test_numbers_are_kept_and_names_numbered_in_the_order_of_the_file(tmp_path):
    assert sorted(graph_of(text_file(tmp_path, "2 0\n0 1\n", ".edgelist")).edges) == [(0, 1), (0, 2)]
    assert sorted(graph_of(text_file(tmp_path, "paris rome\nrome oslo\n", ".edgelist")).edges) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("text", "suffix", "message"),
    [
        ("1 2\n2 3\n", ".edgelist", r"found no node 0 among 1, 2, 3; allowed: the numbers 0 to 2 for its 3 nodes"),
        ("0 1\n01 2\n", ".edgelist", "found no node 3 among 0, 1, 01, 2"),
        ("0 1 -2\n", ".edgelist", "edge 0 - 1: found weight -2.0; allowed: a positive number"),
        ("0 1 nan\n", ".edgelist", "edge 0 - 1: found weight nan; allowed: a positive number"),
        ("0 1 2\n1 0 3\n", ".edgelist", "edge 0 - 1: found weights 2 and 3; allowed: one weight an edge"),
        ("0 1 heavy\n", ".edgelist", "cannot be read: TypeError"),
        ("", ".edgelist", "found no nodes"),
        ("<graphml", ".graphml", "cannot be read: ParseError"),
        ("<graphml/>", ".graphml", "cannot be read: NetworkXError"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, suffix, message):
    with pytest.raises(ConfigError, match=rf"graph{suffix}: {message}"):
        graph_of(text_file(tmp_path, text, suffix))


def test_a_directed_or_missing_file_is_refused(tmp_path):
    nx.write_graphml(nx.DiGraph(KITE), tmp_path / "graph.graphml")
    with pytest.raises(ConfigError, match="graph.graphml: found a directed graph; allowed: an undirected one"):
        graph_of(tmp_path / "graph.graphml")
    with pytest.raises(ConfigError, match="absent.adjlist: cannot be read: No such file"):
        GraphFile(path=str(tmp_path / "absent.adjlist")).graph(3)


def test_a_file_is_for_as_many_clients_as_it_has_nodes(tmp_path):
    nx.write_adjlist(KITE, tmp_path / "graph.adjlist")
    with pytest.raises(ConfigError, match="topology file: found 5 clients; allowed: 4"):
        GraphFile(path=str(tmp_path / "graph.adjlist")).graph(5)


def test_listed_weights_belong_to_their_edges_and_clients():
    weights = {"edge_weights": (2, 3), "self_weights": (1, 4, 1), "weights": {"name": "sinkhorn"}}
    graph = Edges(clients=3, edges=((2, 0), (1, 2)), **weights).graph(3)
    assert graph.edges[0, 2]["weight"] == 2
    assert graph.edges[1, 2]["weight"] == 3
    assert [graph.nodes[i]["weight"] for i in range(3)] == [1, 4, 1]
    with pytest.raises(ConfigError, match="topology edges: edge 0 - 1: found weights 2 and 3"):
        Edges(clients=3, edges=((0, 1), (1, 0)), **weights).graph(3)
