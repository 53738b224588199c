import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.errors import FedLangevinError
from fedlangevin_mpi.runtime.checkpoint import Checkpoints, Snapshot

CLIENTS = [4, 2, 7]
ARRAYS = {"position": np.arange(12.0).reshape(3, 2, 2), "nothing": np.zeros((3, 2, 0)), "checksum": np.arange(3)}
SHARED = {"particles": np.arange(5.0)}


@pytest.fixture
def world():
    with World(MPI.COMM_SELF) as world:
        yield world


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    return tmp_path / "checkpoint"


def save(world, folder, *iterations):
    checkpoints = Checkpoints(world, folder)
    for iteration in iterations:
        arrays = {name: array + iteration for name, array in ARRAYS.items()}
        checkpoints.save(Snapshot(iteration, CLIENTS, arrays, SHARED, {"gradients": 2 * iteration, "seconds": 0.5}))


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_was_saved_is_loaded_in_the_order_that_is_asked_for(world, folder):
    save(world, folder, 10)
    found = Checkpoints(world, folder).load([7, 4])
    assert found.iteration == 10
    assert found.counts == {"gradients": 20, "seconds": 0.5}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found.of_clients[name], (array + 10)[[2, 0]])
        assert found.of_clients[name].dtype == array.dtype
    np.testing.assert_array_equal(found.shared["particles"], SHARED["particles"])


def test_the_last_two_are_kept(world, folder):
    save(world, folder, 10, 20, 30)
    save(world, folder, 40)
    files = ["manifest.json", "rank-00000.npz", "shared.npz"]
    assert names(folder) == [f"{number}/{file}" for number in ("000003", "000004") for file in files]
    assert Checkpoints(world, folder).load(CLIENTS).iteration == 40


def test_there_is_none_at_first(world, folder):
    assert Checkpoints(world, folder).load(CLIENTS) is None
    assert Checkpoints(world, folder / "absent").load(CLIENTS) is None


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda last: flip(last / "rank-00000.npz", 100), "rank-00000.npz: cannot be read: it is damaged"),
        (lambda last: flip(last / "shared.npz", -1), "shared.npz: cannot be read: it is damaged"),
        (lambda last: (last / "rank-00000.npz").unlink(), "rank-00000.npz: cannot be read: "),
        (lambda last: (last / "rank-00000.npz").write_bytes(b"half"), "4 bytes of"),
        (
            lambda last: change(last / "manifest.json", 'iteration\\":20', 'iteration\\":21'),
            "manifest.json: cannot be read: its checksum is wrong",
        ),
        (lambda last: (last / "manifest.json").write_text("{}"), "manifest.json: cannot be read: 'manifest'"),
    ],
    ids=["flipped", "shared", "gone", "cut", "manifest", "empty manifest"],
)
def test_a_damaged_one_falls_back_to_the_one_before_and_says_so(world, folder, caplog, damage, message):
    save(world, folder, 10, 20)
    damage(folder / "000002")
    found = Checkpoints(world, folder).load(CLIENTS)
    assert found.iteration == 10
    np.testing.assert_array_equal(found.of_clients["position"], ARRAYS["position"] + 10)
    assert message in caplog.text


def test_one_without_a_manifest_does_not_count_and_goes_with_the_next(world, folder):
    save(world, folder, 10)
    shutil.copytree(folder / "000001", folder / "000002")
    (folder / "000002" / "manifest.json").unlink()
    assert Checkpoints(world, folder).load(CLIENTS).iteration == 10
    save(world, folder, 30)
    assert sorted(path.name for path in folder.iterdir()) == ["000001", "000003"]


def test_a_client_that_it_does_not_hold_makes_it_unusable(world, folder, caplog):
    save(world, folder, 10)
    assert Checkpoints(world, folder).load([5]) is None
    assert "000001: holds no client 5" in caplog.text


def test_who_asks_may_refuse_one(world, folder):
    save(world, folder, 10, 20)
    assert Checkpoints(world, folder).load(CLIENTS, lambda k: "too late" if k > 15 else "").iteration == 10


def test_a_full_disk_keeps_the_one_before_and_leaves_nothing(world, folder, monkeypatch):
    save(world, folder, 10)
    before = names(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(FedLangevinError, match=r"000002/rank-00000.npz: cannot be written: 1000 bytes are free"):
        save(world, folder, 20)
    assert names(folder) == before
    assert Checkpoints(world, folder).load(CLIENTS).iteration == 10


def test_a_folder_that_vanished_is_not_made_again(world, folder):
    checkpoints = Checkpoints(world, folder)
    folder.rmdir()
    with pytest.raises(FedLangevinError, match=r"000001/rank-00000.npz: cannot be written"):
        checkpoints.save(Snapshot(10, CLIENTS, ARRAYS))
    assert not folder.exists()
