"""The ranks of a run: a communicator of our own, errors that all ranks agree on, waiting that burns no core."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI

from fedlangevin_mpi.errors import ConfigError, FedLangevinError

T = TypeVar("T")
C = TypeVar("C", bound=MPI.Comm)

_LONGEST_NAP = 0.01
_LATEST_NOTICE = 1.0  # seconds until MPI tells of a death on the same host


class RankLostError(Exception):
    """An MPI call failed on some rank, as calls do when a rank's process died; raised on all ranks that are left."""


class World:
    """The ranks of one run, on a duplicate of the communicator that was passed in.

    A context manager. Leaving it with an exception that the ranks did not agree on prints the exception, says where
    this rank was, and ends the job: the others would wait for it for ever. Where `survives` was set, an error of MPI
    is told to all ranks instead, each of which leaves with a `RankLostError`.

    Attributes:
        where: says where this rank is, for that message.
        survives: whether the others go on when a rank's process dies; set on all ranks together.
    """

    where: Callable[[], str] = staticmethod(lambda: "during set-up")
    survives = False

    def __init__(self, comm: MPI.Intracomm | None = None) -> None:
        self._take((MPI.COMM_WORLD if comm is None else comm).Dup())
        self._launched = comm is None

    def _take(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._launched = False
        self._derived: list[MPI.Comm] = []

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, exception: BaseException | None, at: object) -> None:
        agreed = isinstance(exception, FedLangevinError) and exception.agreed
        broken = isinstance(exception, MPI.Exception)
        if self.survives and isinstance(exception, Exception) and not agreed:
            broken = broken or self._someone_died()
        if self.survives and (exception is None or agreed or broken):
            self._part(broken)
        if exception is not None and not agreed and self.size > 1:
            self._abort(exception)
        self.free()

    def free(self) -> None:
        """Free the communicator; safe to call twice."""
        if self.comm != MPI.COMM_NULL:
            self.comm.Free()

    def derive(self, make: Callable[[], C]) -> C:
        """Return a communicator made from this world's; it is revoked with it. Collective."""
        comm = make()
        self._derived.append(comm)
        if self.survives:
            self.comm.Barrier()  # nobody waits in a communicator that another rank failed to make, and cannot revoke
        return comm

    def shrunk(self) -> tuple[World, list[int]]:
        """Return a world of the ranks that are left, in their order, and the numbers here of those that are not.

        Collective over those that are left, after a `RankLostError`.
        """
        left = World.__new__(World)
        left._take(MPI.Intracomm(self.comm.Shrink()))
        numbers = MPI.Group.Translate_ranks(self.comm.Get_group(), list(range(self.size)), left.comm.Get_group())
        return left, [rank for rank, number in enumerate(numbers) if number == MPI.UNDEFINED]

    def _someone_died(self) -> bool:
        """Return whether MPI tells of a rank that died: what it left may give wrong bytes instead of an error."""
        deadline = time.monotonic() + _LATEST_NOTICE
        while not (found := self.comm.Get_failed().size > 0 or self.comm.Is_revoked()) and time.monotonic() < deadline:
            time.sleep(_LONGEST_NAP)
        return found

    def _part(self, broken: bool) -> None:
        """Agree that all ranks that are left came here unharmed.

        Raises:
            RankLostError: one did not, on all ranks.
        """
        if broken:
            for comm in (self.comm, *self._derived):
                if comm != MPI.COMM_NULL:
                    comm.Revoke()  # wakes ranks that wait in it
        while True:
            try:
                unharmed = self.comm.Agree(int(not broken))
                break
            except MPI.Exception:  # once for every rank that was lost, on all others
                self.comm.Ack_failed()
        if not unharmed:
            raise RankLostError("an MPI call failed on some rank")

    def check_launcher(self, environment: Mapping[str, str] = os.environ) -> None:
        """Refuse a launcher that promised more ranks than the communicator has.

        Raises:
            ConfigError: as when `srun --mpi=pmi2` starts N separate one-rank runs of an Open MPI program.
        """
        promised, variable = promised_ranks(environment)
        if self._launched and promised > self.size:
            raise ConfigError(
                f"the launcher promised {promised} ranks ({variable}={promised}), but this run's communicator has "
                f"{self.size}: the launcher does not speak to this MPI ({MPI.Get_library_version().split(',')[0]}). "
                "Allowed: the mpirun of the same environment, or srun --mpi=pmix with Open MPI, --mpi=pmi2 with MPICH"
            )

    def wait(self) -> None:
        """Wait until every rank is here, asleep rather than spinning."""
        request = self.comm.Ibarrier()
        nap = 0.0
        while not request.Test():
            time.sleep(nap)
            nap = min(_LONGEST_NAP, nap + 1e-4)

    def agree(self, action: Callable[[], T]) -> T:
        """Run `action` on every rank and go on only where all of them succeeded.

        Raises:
            FedLangevinError: on every rank the same, naming the ranks that failed.
        """
        result: T | None = None
        error: FedLangevinError | None = None
        try:
            result = action()
        except FedLangevinError as e:
            error = e
        except MPI.Exception:  # the ranks can agree on nothing any more
            raise
        except Exception:
            error = FedLangevinError(f"unexpected error on rank {self.rank}:\n{traceback.format_exc()}")
        self.raise_together(error)
        return result  # type: ignore[return-value]  # set wherever no error was

    def raise_together(self, error: FedLangevinError | None) -> None:
        """Raise on every rank if any rank has an error: the first one, with the others' where they differ."""
        self.wait()
        errors = {rank: e for rank, e in enumerate(self.comm.allgather(error)) if e is not None}
        if not errors:
            return
        first = next(iter(errors.values()))
        texts = list(dict.fromkeys(str(e) for e in errors.values()))
        raised = first if len(texts) == 1 else FedLangevinError.combined(first, texts)
        raised.agreed = True
        raise raised

    def any(self, flag: bool) -> bool:
        """Return whether a flag is true on any rank."""
        return bool(self.highest(flag)[0])

    def highest(self, *numbers: int) -> list[int]:
        """Return, for each number, the highest of all ranks."""
        here = np.array(numbers, np.int64)
        if self.size > 1:
            self.comm.Allreduce(MPI.IN_PLACE, here, op=MPI.MAX)
        found: list[int] = here.tolist()
        return found

    def sum(self, number: int) -> int:
        """Return the sum of a number over all ranks."""
        return int(self.comm.allreduce(number))

    def from_root(self, make: Callable[[], T]) -> T:
        """Return what `make` gives on rank 0, on every rank; an error of rank 0 is raised on all."""
        made = self.agree(lambda: make() if self.rank == 0 else None)
        result: T = self.comm.bcast(made, root=0)
        return result

    def in_turn(self, action: Callable[[], T]) -> T:
        """Run `action` on rank 0 first and on the others afterwards: what rank 0 leaves in a cache, they find."""
        first = self.agree(lambda: action() if self.rank == 0 else None)
        later = self.agree(lambda: action() if self.rank != 0 else None)
        return first if self.rank == 0 else later  # type: ignore[return-value]  # one of the two is this rank's

    def _abort(self, exception: BaseException) -> None:
        sys.stdout.flush()
        trace = "".join(traceback.format_exception(exception))
        sys.stderr.write(f"fedlangevin: rank {self.rank} failed {self.where()}\n{trace}")
        sys.stderr.flush()
        self.comm.Abort(1)


def raise_code(code: np.ndarray[Any, np.dtype[np.int64]]) -> None:
    """Raise what MPI says of an error code `(1,)` that compiled code left, unless it is 0.

    Raises:
        MPI.Exception: with MPI's own text.
    """
    if code[0] != MPI.SUCCESS:
        raise MPI.Exception(int(code[0]))


def promised_ranks(environment: Mapping[str, str]) -> tuple[int, str]:
    """Return how many ranks the launcher said it starts, and the variable that says so; (1, "") without a launcher.

    Under mpirun the variables of SLURM belong to the daemon or the allocation, so mpirun's own come first.
    """
    for variable in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"):
        value = environment.get(variable, "")
        if value.isdigit():
            return int(value), variable
    return 1, ""


def place_on_this_node(comm: MPI.Intracomm) -> tuple[int, int]:
    """Return the number of this rank among those that share its node's memory, and so its cores, and how many do."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        return node.Get_rank(), node.Get_size()
    finally:
        node.Free()
