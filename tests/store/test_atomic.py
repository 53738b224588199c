from __future__ import annotations

from collections import namedtuple

import pytest

from fedlangevin_mpi.errors import StoreError
from fedlangevin_mpi.store import atomic
from fedlangevin_mpi.store.atomic import replacing


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    with replacing(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.json"]


def begin_and_fail(path, error):
    with replacing(path) as partial:
        partial.write_text("half")
        raise error


@pytest.mark.parametrize("error", [OSError("disk on fire"), RuntimeError("library on fire"), KeyboardInterrupt()])
def test_failure_leaves_nothing_behind(tmp_path, error):
    path = tmp_path / "a.json"
    path.write_text("old")
    told = StoreError if isinstance(error, Exception) else KeyboardInterrupt
    with pytest.raises(told):
        begin_and_fail(path, error)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.json"]


def test_a_full_disk_is_found_before_writing(tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda path: usage(free=3 << 20))
    with replacing(tmp_path / "a.nc", room=2 << 20) as partial:
        partial.touch()
    message = r"b\.nc: cannot be written: 3145728 bytes are free and 3145729 needed"
    with pytest.raises(StoreError, match=message), replacing(tmp_path / "b.nc", room=(2 << 20) + 1):
        pytest.fail("began to write")
