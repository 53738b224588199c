from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml

from fedlangevin_mpi.errors import ConfigError, StoreError
from fedlangevin_mpi.store import draws as draws_module
from fedlangevin_mpi.store import reader
from fedlangevin_mpi.store.reader import open_run
from fedlangevin_mpi.store.writer import DrawWriter

INDICES = [
    np.s_[:],
    np.s_[3],
    np.s_[-1],
    np.s_[np.int64(2)],
    np.s_[2:9],
    np.s_[1:20:4],
    np.s_[::-3],
    np.s_[7:2:-1],
    np.s_[30:],
    np.s_[...],
    np.s_[..., 1],
    np.s_[:, 0],
    np.s_[4, 1, 2],
    np.s_[:, ::-1, 1:3],
    np.s_[2:8:2, -1, ...],
    np.s_[..., 2:0:-1],
    np.s_[5, ..., 0],
    np.s_[:, 5:1:-1, :],
]


def positions(draws=11, clients=4, chains=2, dim=3, dtype="float64") -> np.ndarray:
    return np.random.default_rng(5).normal(size=(draws, clients, chains, dim)).astype(dtype)


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_lazy_arrays_index_as_arrays(make_run, monkeypatch, index):
    monkeypatch.setattr(draws_module, "_READ_BYTES", 200)  # several reads for one answer
    x = positions()
    run = open_run(make_run(x, placement=[[2, 0], [1, 3]]))
    for lazy, whole in ((run.position(2), x[:, 2]), (run.average(), x.mean(1))):
        assert lazy.shape == whole.shape
        got = lazy[index]
        assert got.shape == whole[index].shape
        np.testing.assert_allclose(got, whole[index], rtol=1e-14, atol=0)
    np.testing.assert_array_equal(run.position(2)[index], x[:, 2][index])


@pytest.mark.parametrize(("index", "error"), [(11, IndexError), (np.s_[0, 0, 0, 0], IndexError), ([1, 2], TypeError)])
def test_other_indices_are_refused(make_run, index, error):
    with pytest.raises(error, match="index"):
        open_run(make_run(positions())).average()[index]


def test_average_is_bitwise_the_same_on_any_placement(make_run):
    x = positions(clients=5)
    averages = [
        np.asarray(open_run(make_run(x, placement, name=str(k))).average())
        for k, placement in enumerate([[[0, 1, 2, 3, 4]], [[0, 1], [2, 3, 4]], [[4, 1], [0], [3, 2]]])
    ]
    assert all(np.array_equal(averages[0], average) for average in averages[1:])


def test_average_of_single_precision_is_summed_in_double(make_run):
    x = np.float32([1.0, 2.0**-25, 2.0**-25, 2.0**-25, 2.0**-25]).reshape(1, 5, 1, 1)
    average = open_run(make_run(x)).average()
    assert average.dtype == np.float32
    assert average[0, 0, 0] == np.float32((1 + 2.0**-23) / 5) != np.float32(0.2)


def test_blocks_are_the_draws_in_order(make_run):
    x = positions()
    blocks = list(open_run(make_run(x)).position(1).blocks(limit=4 * 2 * 3 * 8))
    assert [(first, len(block)) for first, block in blocks] == [(0, 4), (4, 4), (8, 3)]
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), x[:, 1])


def test_only_the_files_asked_for_are_read(make_run):
    x = positions()
    directory = make_run(x, placement=[[0, 1], [2, 3]])
    run = open_run(directory)
    (directory / "rank-00001.h5").unlink()
    np.testing.assert_array_equal(run.position(1)[:], x[:, 1])
    with pytest.raises(StoreError, match=r"rank-00001\.h5: cannot be read"):
        run.position(2)[0]


def test_run_says_what_it_is(make_run):
    run = open_run(make_run(positions(), placement=[[0, 1], [2, 3]], about={"seed": 9, "coins": "per_chain"}))
    assert (run.algorithm, run.seed, run.coins) == ("fald", 9, "per_chain")
    assert (run.draws, run.clients, run.chains, run.dim) == (11, 4, 2, 3)
    assert run.config["data"] == {"name": "files", "path": "client-{client}.npz"}
    assert run.statistics.communication.messages == 120
    assert [path.name for path in run.files] == ["rank-00000.h5", "rank-00001.h5"]
    np.testing.assert_array_equal(run.iterations, np.arange(11))
    with pytest.raises(ConfigError, match=r"client 4 has no draws in .*; allowed: 0 to 3"):
        run.position(4)


def test_parameters_have_names_shapes_and_labels(make_run):
    x = positions(dim=7)
    run = open_run(
        make_run(
            x,
            parameters={"coefficients": [2], "weights": [2, 2], "precision": []},
            coordinates={"coefficients": ["age", "sex"], "weights": None},
        )
    )
    assert run.resolved.labels() == [
        *("coefficients[age]", "coefficients[sex]"),
        *("weights[0,0]", "weights[0,1]", "weights[1,0]", "weights[1,1]"),
        "precision",
    ]
    named = run.named(client=2)
    chains_first = x[:, 2].swapaxes(0, 1)
    np.testing.assert_array_equal(named["coefficients"], chains_first[..., :2])
    np.testing.assert_array_equal(named["weights"], chains_first[..., 2:6].reshape(2, 11, 2, 2))
    np.testing.assert_array_equal(named["precision"], chains_first[..., 6])
    np.testing.assert_allclose(run.named()["precision"], x[..., 6].mean(1).T, rtol=1e-14)


def test_labels_lie_along_the_axis_of_their_length(make_run):
    coordinates = {"weights": ["age", "sex", "class"]}
    run = open_run(make_run(positions(dim=6), parameters={"weights": [2, 3]}, coordinates=coordinates))
    assert run.resolved.labels()[1:4] == ["weights[0,sex]", "weights[0,class]", "weights[1,age]"]


def test_a_draw_counts_when_every_rank_has_committed_it(tmp_path, write_draws, write_run_file):
    x = positions()
    write_run_file(tmp_path, 4, 2, 3)
    write_draws(tmp_path, x, [[0, 1], [2, 3]])
    with h5py.File(tmp_path / "rank-00001.h5", "r+") as file:
        file["draws/committed"][()] = 6
    run = open_run(tmp_path)
    assert run.draws == len(run.iterations) == 6
    np.testing.assert_array_equal(run.position(0)[:], x[:6, 0])


def test_segments_follow_each_other(tmp_path, write_draws, write_run_file):
    """The resume went on from a checkpoint after draw 7, and placed the clients on other ranks."""
    x, later = positions(), positions() + 1
    write_run_file(tmp_path, 4, 2, 3)
    write_draws(tmp_path, x, [[0, 1], [2, 3]], iterations=range(9, 119, 10))
    write_draws(tmp_path, later, [[0, 1, 2, 3]], segment=1, iterations=range(89, 199, 10))
    run = open_run(tmp_path)
    assert run.draws == 8 + 11
    np.testing.assert_array_equal(run.iterations, range(9, 199, 10))
    np.testing.assert_array_equal(run.position(3)[:], np.concatenate([x[:8, 3], later[:, 3]]))
    np.testing.assert_array_equal(run.position(3)[4:12:3], [x[4, 3], x[7, 3], later[2, 3]])


def test_a_resume_stopped_before_its_first_draw_left_no_segment(tmp_path, write_draws, write_run_file):
    x = positions()
    write_run_file(tmp_path, 4, 2, 3)
    write_draws(tmp_path, x, [[0, 1], [2, 3]])
    write_draws(tmp_path, x[:0, :2], [[0, 1]], segment=1, ranks=2)
    assert open_run(tmp_path).draws == 11


def test_empty_run_can_be_read(tmp_path, write_draws, write_run_file):
    write_run_file(tmp_path, 4, 2, 3)
    write_draws(tmp_path, positions(draws=0), [[0, 1], [2, 3]])
    run = open_run(tmp_path)
    assert run.draws == 0
    assert run.statistics is None
    assert run.iterations.shape == (0,)
    assert run.average()[:].shape == (0, 2, 3)
    assert run.named()["x"].shape == (2, 0, 3)


def test_particles_belong_to_no_client(tmp_path, write_draws, write_run_file):
    x = positions(clients=1)
    write_run_file(tmp_path, 4, 2, 3)
    write_draws(tmp_path, x, [[-1]])
    run = open_run(tmp_path)
    assert run.clients == 4
    np.testing.assert_array_equal(run.average()[:], x[:, 0])
    np.testing.assert_array_equal(run.position(-1)[:], x[:, 0])


def spoil_run_file(directory):
    path = directory / "run.yaml"
    content = yaml.safe_load(path.read_text())
    del content["resolved"]["chains"]
    path.write_text(yaml.safe_dump(content))


def set_attribute(**attributes):
    def spoil(directory):
        with h5py.File(directory / "rank-00001.h5", "r+") as file:
            file.attrs.update(attributes)

    return spoil


SPOILED = {
    r"holds no run: there is no run\.yaml": lambda d: (d / "run.yaml").unlink(),
    r"run\.yaml: has no key 'resolved'": lambda d: (d / "run.yaml").write_text("seed: 1"),
    r"run\.yaml: chains: Field required": spoil_run_file,
    r"statistics\.json: cannot be read": lambda d: (d / "statistics.json").write_text("{"),
    r"statistics\.json: iterations: Field required": lambda d: (d / "statistics.json").write_text("{}"),
    r"rank-00000\.h5: is missing; the folder holds no draws": lambda d: [f.unlink() for f in d.glob("*.h5")],
    r"rank-00001\.h5: is missing; it holds the draws of client 2": lambda d: (d / "rank-00001.h5").unlink(),
    r"rank-00001\.h5: cannot be read as the draws of a run": lambda d: (d / "rank-00001.h5").write_bytes(b"no HDF5"),
    r"rank-00001\.h5: is not a draw file": set_attribute(format="other"),
    r"rank-00001\.h5: has format version 2; allowed: up to 1": set_attribute(format_version=2),
    r"rank-00001\.h5: belongs to another run: seed 3, but rank-00000\.h5 has 1": set_attribute(seed=3),
    r"rank-00000\.s01\.h5: is missing": lambda d: shutil.copy(d / "rank-00000.h5", d / "rank-00000.s02.h5"),
}


@pytest.mark.parametrize("message", SPOILED)
def test_what_cannot_be_read_is_named(make_run, message):
    directory = make_run(positions(), placement=[[0, 1], [2, 3]])
    SPOILED[message](directory)
    with pytest.raises(StoreError, match=message):
        open_run(directory)


@pytest.fixture
def killed(tmp_path, write_run_file) -> Path:
    """A run whose writer was killed, or is at work: nobody closed the file. One level up lies the same one, closed."""
    directory = tmp_path / "killed"
    directory.mkdir()
    write_run_file(directory, 4, 2, 3)
    shape = {"clients": [0, 1, 2, 3], "chains": 2, "dim": 3, "dtype": "float64", "capacity_per_block": 20_000}
    with DrawWriter(tmp_path, rank=0, ranks=1, algorithm="fald", seed=1, coins="shared", **shape) as writer:
        writer.buffer[:20_000] = 1
        writer.commit(20_000, range(20_000))
        writer.flush()
        shutil.copy(writer.path, directory)
    return directory


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize("left", [20, 1000, 3000, 6000, 20_000, 2_000_000, 4_200_000])
@pytest.mark.parametrize("closed", [False, True])
def test_cut_file_is_named(killed, left, closed):
    path = (killed.parent if closed else killed) / "rank-00000.h5"
    content = path.read_bytes()[:left]
    (killed / "rank-00000.h5").write_bytes(content)
    with pytest.raises(StoreError, match=r"rank-00000\.h5: .*(was cut|bad global heap)"):
        open_run(killed)


def test_file_of_a_killed_run_may_end_with_its_last_draw(killed):
    path = killed / "rank-00000.h5"
    with h5py.File(path, swmr=True) as file:
        chunk = file["draws/iteration"].id.get_chunk_info(2)  # written last, of 8192 iterations each
        end = chunk.byte_offset + (20_000 - 2 * 8192) * 8
    cut(path, end)
    run = open_run(killed)
    assert (run.average()[:] == 1).all()
    np.testing.assert_array_equal(run.iterations, np.arange(20_000))
    cut(path, end - 1)
    with pytest.raises(StoreError, match=r"rank-00000\.h5: was cut"):
        open_run(killed)


def test_shapes_must_fill_the_dimension(make_run):
    with pytest.raises(StoreError, match=r"run\.yaml: the shapes of resolved\.parameters do not add up to dim 3"):
        open_run(make_run(positions(), parameters={"x": [2]}))


def test_consensus_distance_is_that_of_clients_from_their_average(make_run, monkeypatch):
    monkeypatch.setattr(reader, "_READ_BYTES", 200)  # four draws at a time
    x = positions()
    run = open_run(make_run(x, [[0, 1, 2], [3]]))
    expected = np.sqrt(np.square(x - x.mean(axis=1, keepdims=True)).sum(-1).mean((1, 2)))
    np.testing.assert_allclose(run.consensus_distance(), expected, rtol=1e-14)
    np.testing.assert_allclose(run.consensus_distance(range(1, 11, 2)), expected[1::2], rtol=1e-14)
    assert run.consensus_distance(range(0)).shape == (0,)
