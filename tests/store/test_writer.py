from __future__ import annotations

import errno
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from fedlangevin_mpi.errors import StoreError
from fedlangevin_mpi.store import layout, writer
from fedlangevin_mpi.store.reader import open_run
from fedlangevin_mpi.store.writer import DrawWriter

ABOUT = {"ranks": 2, "algorithm": "vr_fald", "seed": 7, "coins": "shared"}


def make_writer(directory: Path, **changes) -> DrawWriter:
    options = {"rank": 1, "clients": [3, 4], "chains": 2, "dim": 3, "dtype": "float64", "capacity_per_block": 8}
    return DrawWriter(directory, **ABOUT | options | changes)


def draws(first: int, count: int, shape: tuple[int, ...] = (2, 2, 3)) -> np.ndarray:
    return first + np.arange(count, dtype=float).reshape(-1, 1, 1, 1) + np.arange(np.prod(shape)).reshape(shape) / 64


def put(w: DrawWriter, first: int, count: int) -> None:
    w.buffer[w.filled : w.filled + count] = draws(first, count, w.buffer.shape[1:])
    w.commit(count, 10 * np.arange(first, first + count))


def test_file_is_laid_out_as_the_contract_says(tmp_path):
    with make_writer(tmp_path, dtype="float32") as w:
        put(w, 0, 5)
    assert [path.name for path in tmp_path.iterdir()] == ["rank-00001.h5"]
    with h5py.File(tmp_path / "rank-00001.h5") as file:
        assert file["draws/position"].shape == (5, 2, 2, 3)
        assert file["draws/position"].dtype == np.float32
        np.testing.assert_array_equal(file["draws/position"][:], draws(0, 5).astype(np.float32))
        np.testing.assert_array_equal(file["draws/iteration"][:], [0, 10, 20, 30, 40])
        assert file["draws/committed"][()] == 5
        np.testing.assert_array_equal(file["clients"][:], [3, 4])
        expected = ABOUT | {"format": "fedlangevin", "format_version": 1, "rank": 1, "chains": 2}
        assert dict(file.attrs) == expected


def test_segments_have_their_own_files(tmp_path):
    make_writer(tmp_path, segment=2).close()
    assert (tmp_path / "rank-00001.s02.h5").exists()


def test_draws_keep_their_order_over_uneven_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_WRITE_BYTES", 10 * 96)  # ten draws
    monkeypatch.setattr(writer, "_CHUNK_BYTES", 3 * 96)
    generator = np.random.default_rng(0)
    total = 0
    with make_writer(tmp_path) as w:
        for count in generator.integers(0, 9, size=60):
            assert len(w.buffer) - w.filled >= 8
            put(w, total, count)
            total += count
        assert 0 < w.committed < total
    with h5py.File(w.path) as file:
        assert file["draws/committed"][()] == total
        np.testing.assert_array_equal(file["draws/position"][:], draws(0, total))
        np.testing.assert_array_equal(file["draws/iteration"][:], 10 * np.arange(total))


def test_waiting_draws_are_written_after_a_second(tmp_path):
    now = 100.0
    with make_writer(tmp_path, clock=lambda: now) as w:
        put(w, 0, 3)
        now = 100.9
        w.commit(0, [])
        assert (w.committed, w.filled) == (0, 3)
        now = 101.0
        w.commit(0, [])
        assert (w.committed, w.filled) == (3, 0)
        now = 101.9
        put(w, 3, 2)
        assert (w.committed, w.filled) == (3, 2)


def test_existing_file_is_never_overwritten(tmp_path):
    (tmp_path / "rank-00001.h5").write_text("draws of another run")
    with pytest.raises(StoreError, match=r"rank-00001\.h5: is there already, and a run is never overwritten"):
        make_writer(tmp_path)
    assert (tmp_path / "rank-00001.h5").read_text() == "draws of another run"


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"gone/rank-00001\.h5: cannot be written: .*No such file"):
        make_writer(tmp_path / "gone")


def test_file_removed_during_the_run_is_noticed(tmp_path):
    w = make_writer(tmp_path)
    put(w, 0, 3)
    w.path.unlink()
    with pytest.raises(StoreError, match=r"rank-00001\.h5: cannot be written: it was moved or removed"):
        w.flush()
    w.close()


SCRIPT = """
import os
import itertools, resource, signal, sys
from pathlib import Path
import numpy as np
from fedlangevin_mpi.errors import StoreError
from fedlangevin_mpi.store import writer

cell = np.arange(12.0).reshape(2, 2, 3) / 64

def fill(directory, counts):
    about = {"rank": 0, "ranks": 1, "algorithm": "fald", "seed": 1, "coins": "shared"}
    shape = {"clients": [0, 1], "chains": 2, "dim": 3, "dtype": "float64", "capacity_per_block": 8}
    first = 0
    with writer.DrawWriter(Path(directory), **about, **shape) as w:
        for count in counts:
            numbers = np.arange(first, first + count)
            w.buffer[w.filled : w.filled + count] = numbers[:, None, None, None] + cell
            w.commit(count, 10 * numbers)
            first += count
"""
"""Defines `fill`, which writes `draws(0, ...)` in blocks of the given sizes."""

FULL_DISK = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
writer._WRITE_BYTES = 100_000
try:
    fill(sys.argv[1], itertools.repeat(8, 10_000))
except StoreError as error:
    print(error, flush=True)
os._exit(0)  # as the command line does: HDF5 would try again to write, on Python's way out
"""

ENDLESS = """
writer._WRITE_SECONDS = 0.002  # many small writes into one chunk
fill(sys.argv[1], itertools.cycle(range(1, 9)))
"""


def test_full_disk_keeps_what_was_committed(tmp_path, write_run_file):
    write_run_file(tmp_path, clients=2, chains=2, dim=3)
    command = [sys.executable, "-c", SCRIPT + FULL_DISK, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rank-00000.h5: cannot be written: " in done.stdout
    assert "File too large" in done.stdout
    assert 5_000 < check_draws(tmp_path) < 10_922  # that many would fill the MiB


@pytest.mark.parametrize("seconds", [0.2, 0.53])
def test_every_committed_draw_is_right_live_and_after_a_kill(tmp_path, write_run_file, seconds):
    write_run_file(tmp_path, clients=2, chains=2, dim=3)
    with subprocess.Popen([sys.executable, "-c", SCRIPT + ENDLESS, tmp_path]) as process:
        try:
            while not (tmp_path / "rank-00000.h5").exists():
                assert process.poll() is None
                time.sleep(0.01)
            stop = time.monotonic() + seconds
            counts = [check_draws(tmp_path)]
            while time.monotonic() < stop or counts[-1] == counts[0]:
                counts.append(check_draws(tmp_path))
        finally:
            process.send_signal(signal.SIGKILL)
    assert counts == sorted(counts)
    assert check_draws(tmp_path) >= counts[-1]


def check_draws(directory: Path) -> int:
    run = open_run(directory)
    np.testing.assert_array_equal(run.iterations, 10 * np.arange(run.draws))
    np.testing.assert_array_equal(run.average()[:], draws(0, run.draws).mean(1))
    return run.draws


def test_file_system_without_locks_is_used_without_them(tmp_path, monkeypatch):
    real, asked = h5py.File, []

    def without_locks(*args, locking, **options):
        asked.append(locking)
        if locking is not False:
            raise OSError(errno.ENOLCK, "unable to lock file")
        return real(*args, locking=locking, **options)

    monkeypatch.setattr(layout.h5py, "File", without_locks)
    with make_writer(tmp_path) as w:
        put(w, 0, 2)
    assert asked == ["best-effort", False]
    with layout.reading(w.path) as file:
        assert file[layout.COMMITTED][()] == 2


def test_run_killed_before_its_first_draw_is_an_empty_run(tmp_path, write_run_file):
    killed = tmp_path / "killed"
    killed.mkdir()
    write_run_file(killed, clients=2, chains=2, dim=3)
    with make_writer(tmp_path, rank=0, clients=[0, 1], ranks=1) as w:
        shutil.copy(w.path, killed)  # what another process sees of a file that is still open
    run = open_run(killed)
    assert run.draws == 0
    assert run.average()[:].shape == (0, 2, 3)
    with h5py.File(killed / "rank-00000.h5", swmr=True) as file:
        # Its place is fixed before a reader can come: HDF5 readers of the moment when it is given fail (issue 5251).
        assert file["draws/committed"].id.get_offset() is not None
