#!/usr/bin/env python
"""Kill ranks of a run at random moments, resume it each time, and compare the draws with those of a run in peace.

    python launch/stress.py                        20 kills on two ranks, some minutes
    python launch/stress.py --kills 3 --iterations 60000
    python launch/stress.py --shrink --ranks 3     20 runs, each of which loses a rank and goes on with the others

A third of the kills strike at any moment, a third when a checkpoint is being written, a third when draws are. In the
end the draws must be equal to the bit, with --shrink to rounding, and no process and no temporary file may be left.
"""

from __future__ import annotations

import argparse
import atexit
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml

from fedlangevin_mpi import open_run
from fedlangevin_mpi.store.reader import Run

CONFIG = {
    "seed": 1,
    "clients": 4,
    "chains": 20,
    "warmup": 1000,
    "thin": 50,
    "algorithm": {"name": "vr_fald", "step_size": 0.01, "communication_probability": 0.02},
    "model": {"name": "gaussian"},
    "data": {"name": "synthetic_gaussian", "dim": 10},
}
CHECKPOINT_SECONDS = 0.1
LONGEST_START = 120.0
LONGEST_END = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=300_000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--shrink", action="store_true", help="the other ranks go on (on_failure: shrink)")
    arguments = parser.parse_args()
    test, equal = (outlive, "to rounding") if arguments.shrink else (stress, "to the bit")
    with tempfile.TemporaryDirectory() as own:
        test(Path(own), arguments.kills, arguments.iterations, arguments.ranks, random.Random(arguments.seed))
    print(f"{arguments.kills} kills: equal {equal}, no process and no temporary file is left")


def stress(folder: Path, kills: int, iterations: int, ranks: int, chance: random.Random) -> None:
    struck = folder / "struck"
    calm, start, seconds = in_peace(folder, iterations, ranks)
    spread = 0.6 * seconds / (kills + 1)
    command = [*start, str(struck), f"output.checkpoint_seconds={CHECKPOINT_SECONDS}"]
    for kill in range(kills):
        moment = (anytime, checkpointing, storing)[kill % 3]
        strike(command, struck, kill, ranks, chance, lambda: chance.uniform(0, spread), moment)
        command = ["resume", str(struck), "--ranks", str(ranks)]
    expect(finish(begin(command)) == 0, "the last resume failed")
    compare(calm.directory, struck)
    expect_tidy(struck)


def outlive(folder: Path, kills: int, iterations: int, ranks: int, chance: random.Random) -> None:
    calm, start, seconds = in_peace(folder, iterations, ranks)
    for kill in range(kills):
        struck = folder / f"struck-{kill}"
        shrinking = ["on_failure=shrink", "output.watchdog_seconds=20"]
        process = begin([*start, str(struck), f"output.checkpoint_seconds={CHECKPOINT_SECONDS}", *shrinking])
        members, victims = members_of(process, [struck / f"rank-{rank:05d}.h5" for rank in range(ranks)], ranks)
        moment = (anytime, checkpointing, storing)[kill % 3]
        moment(struck, 0, chance.uniform(0, 0.3 * seconds))
        expect(process.poll() is None, "the run came to its end before its time: give more --iterations")
        os.kill(chance.choice(victims), signal.SIGKILL)
        expect(finish(process) == 0, "the others did not come to the end")
        gone_soon(members, time.monotonic())
        compare(calm.directory, struck, rtol=1e-9)
        expect_tidy(struck)
        loss = open_run(struck).resolved.losses[0]
        print(f"kill {kill + 1}, {moment.__name__}: {loss.text()}", flush=True)


def in_peace(folder: Path, iterations: int, ranks: int) -> tuple[Run, list[str], float]:
    """Run undisturbed; return the run, the command but for its folder, and how many seconds it samples."""
    config, peace = folder / "config.yaml", folder / "peace"
    config.write_text(yaml.safe_dump(CONFIG | {"iterations": iterations}))
    start = ["run", str(config), "--ranks", str(ranks), "--output"]
    expect(finish(begin([*start, str(peace)])) == 0, "the run in peace failed")
    calm = open_run(peace)
    assert calm.statistics is not None
    return calm, start, iterations / calm.statistics.iterations_per_second


def expect_tidy(struck: Path) -> None:
    left = [path for path in struck.rglob("*") if path.name.endswith(".partial")]
    expect(not left, f"temporary files are left: {left}")
    whole = {entry.name for entry in (struck / "checkpoint").iterdir()}
    expect(len(whole) <= 2, f"more than two checkpoints are left: {whole}")


def strike(
    command: list[str],
    folder: Path,
    segment: int,
    ranks: int,
    chance: random.Random,
    delay: Callable[[], float],
    moment: Callable[[Path, int, float], None],
) -> None:
    """Start a run or a resume, kill one of its ranks, and see that all are gone soon."""
    process = begin(command)
    suffix = f".s{segment:02d}" if segment else ""
    files = [folder / f"rank-{rank:05d}{suffix}.h5" for rank in range(ranks)]
    members, victims = members_of(process, files, ranks)
    moment(folder, segment, delay())
    expect(process.poll() is None, "the run came to its end before its time: give more --iterations")
    os.kill(chance.choice(victims), signal.SIGKILL)
    struck = time.monotonic()
    status = finish(process)
    gone_soon(members, struck)
    expect(status == 1, f"the status was {status}")
    print(f"kill {segment + 1}, {moment.__name__}: all gone after {time.monotonic() - struck:.1f} s", flush=True)


def members_of(process: subprocess.Popen[str], files: list[Path], ranks: int) -> tuple[list[int], list[int]]:
    """Wait until a run's draw files are there; return the processes below its launcher, and those that are ranks."""
    deadline = time.monotonic() + LONGEST_START
    while not all(file.exists() for file in files):
        expect(process.poll() is None and time.monotonic() < deadline, "a start failed")
        time.sleep(0.01)
    members = below(process.pid)
    victims = [pid for pid in members if is_rank(pid)]
    expect(len(victims) == ranks, f"found ranks {victims}")
    return members, victims


def gone_soon(members: list[int], since: float) -> None:
    while any(alive(pid) for pid in members):
        expect(time.monotonic() - since < LONGEST_END, f"of {members} some are still there")
        time.sleep(0.01)


def anytime(_: Path, __: int, delay: float) -> None:
    time.sleep(delay)


def checkpointing(folder: Path, _: int, delay: float) -> None:
    """Return when a part of a checkpoint, or its manifest, is half written."""
    time.sleep(delay)
    deadline = time.monotonic() + 5.0
    while not half_written(folder) and time.monotonic() < deadline:
        pass


def half_written(folder: Path) -> bool:
    try:
        return bool(list(folder.glob("checkpoint/*/.*.partial")))
    except FileNotFoundError:  # an old checkpoint went away meanwhile
        return False


def storing(folder: Path, segment: int, delay: float) -> None:
    """Return when a draw file has just grown: its index and its counter are still to come."""
    time.sleep(delay)
    file = max(folder.glob(f"rank-*.s{segment:02d}.h5" if segment else "rank-?????.h5"))
    deadline, size = time.monotonic() + 5.0, file.stat().st_mtime_ns
    while file.stat().st_mtime_ns == size and time.monotonic() < deadline:
        pass


def compare(calm: Path, struck: Path, rtol: float = 0.0) -> None:
    one, other = open_run(calm), open_run(struck)
    np.testing.assert_array_equal(one.iterations, other.iterations)
    for client in range(one.clients):
        np.testing.assert_allclose(one.position(client)[:], other.position(client)[:], rtol=rtol, atol=rtol)
    assert one.statistics is not None
    assert other.statistics is not None
    expect(one.statistics.gradient_evaluations == other.statistics.gradient_evaluations, "gradients differ")
    # What MPI carries depends on how many ranks there were.
    counted = {"mpi_bytes"} if rtol else set()
    sent = [run.statistics.communication.model_dump(exclude=counted) for run in (one, other) if run.statistics]
    expect(sent[0] == sent[1], "communication differs")


def begin(command: list[str]) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "fedlangevin_mpi", *command]
    # Ranks that spin would keep a busy machine's cores from each other.
    environment = os.environ | {"OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(program, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    atexit.register(process.kill)  # with it go mpirun and the ranks; of a process that ended nothing is left to kill
    return process


def finish(process: subprocess.Popen[str]) -> int:
    _, said = process.communicate(timeout=600)
    if process.returncode not in (0, 1) or (process.returncode == 1 and "was killed" not in said):
        sys.exit(f"stress: status {process.returncode}: {said}")
    return process.returncode


def below(pid: int) -> list[int]:
    """Return a process's children, and theirs."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, listed.splitlines())}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {pid})


def is_rank(pid: int) -> bool:
    return alive(pid) and b"OMPI_COMM_WORLD_RANK=" in Path(f"/proc/{pid}/environ").read_bytes()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def expect(right: bool, problem: str) -> None:
    if not right:
        sys.exit(f"stress: {problem}")


if __name__ == "__main__":
    main()
