"""A real SLURM of one machine: two emulated hosts as nodes, their daemons, and a job's life as tests need it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from launch.bench.emulated_hosts import HEAD, EmulatedHosts

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "unshare", "nsenter", "ip")
SYSTEM_FOLDERS = "/usr/sbin:/sbin"

# No cgroups, no systemd, no accounting; nodes claim more cores than there are. cred_expire is also how long a job that
# was queued again waits before it starts.
CONFIG = """
ClusterName=emulated
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n/slurmd.pid
SlurmdLogFile={folder}/%n/slurmd.log
SlurmdSpoolDir={folder}/%n/spool
TmpFS={folder}/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
PropagateResourceLimits=NONE
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
KillWait=5
NodeName={nodes} CPUs=4
PartitionName=all Nodes=ALL Default=YES
"""


class Cluster:
    """SLURM on two emulated hosts. A context manager; its daemons end with the hosts.

    Args:
        folder: an empty folder for its files.
        hosts: its nodes.

    Raises:
        TimeoutError: the nodes do not get ready.
    """

    def __init__(self, folder: Path, hosts: EmulatedHosts) -> None:
        self.folder, self.hosts = folder, hosts
        launchers = ("SLURM", "SBATCH", "PMI", "OMPI", "PRTE")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
        self.environment = inherited | {
            "PATH": f"{os.environ['PATH']}:{SYSTEM_FOLDERS}",
            "SLURM_CONF": str(folder / "slurm.conf"),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            # Nodes claim more cores than there are, which Open MPI does not know.
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }
        self._write_files()
        self._start_daemons()

    def _write_files(self) -> None:
        for name in ("munge", "state", *(f"{node}/spool" for node in self.hosts.names)):
            (self.folder / name).mkdir(parents=True)
        config = CONFIG.format(folder=self.folder, nodes=",".join(self.hosts.names))
        (self.folder / "slurm.conf").write_text(config)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)

    def _start_daemons(self) -> None:
        munge = self.folder / "munge"
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        # --force: it is root's, and its folder is not the system's.
        options = [f"--{option}={munge / file}" for option, file in files.items()]
        self._start(HEAD, "munged", "--foreground", "--force", *options)
        self._start(HEAD, "slurmctld", "-D", "-i")
        for node in self.hosts.names:
            self._start(node, "slurmd", "-D", "-N", node)
        self._wait_for_nodes(30)

    def _start(self, host: str, *daemon: str) -> None:
        with (self.folder / f"{daemon[0]}-{host}.out").open("w") as out:
            subprocess.Popen(
                self.hosts.command(host, daemon),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def _wait_for_nodes(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._call("sinfo", "-h", "-N", "-o", "%t").stdout.split() != ["idle"] * len(self.hosts.names):
            if time.monotonic() > deadline:
                said = "\n".join(f"== {log}\n{log.read_text()[-2000:]}" for log in self.folder.rglob("*.out"))
                raise TimeoutError(f"SLURM's nodes are not ready:\n{said}")
            time.sleep(0.2)

    def _call(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.hosts.run(HEAD, command, env=self.environment | variables)

    def command(self, *command: str, **variables: str) -> str:
        """Run a command of SLURM on the head node and return what it printed.

        Raises:
            AssertionError: it failed.
        """
        done = self._call(*command, **variables)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def state(self, job: str) -> Mapping[str, str]:
        """Return what `scontrol show job` knows of a job, as JobState, ExitCode or Restarts."""
        return dict(re.findall(r"(\S+?)=(\S*)", self.command("scontrol", "--oneliner", "show", "job", job)))

    def wait(self, job: str, *states: str, seconds: float = 200) -> Mapping[str, str]:
        """Wait until a job has one of these states and return what is known of it."""
        deadline = time.monotonic() + seconds
        while (now := self.state(job))["JobState"] not in states:
            assert time.monotonic() < deadline, f"job {job} is {now['JobState']}:\n{self.output(job)}"
            time.sleep(0.2)
        return now

    def output(self, job: str) -> str:
        """Return what a job has printed."""
        path = Path(self.state(job)["StdOut"])
        return path.read_text() if path.exists() else ""

    def processes(self) -> list[str]:
        """Return the command lines of the programs that jobs left or run on the nodes."""
        listed = self.hosts.run(HEAD, ["ps", "-eo", "args"]).stdout.splitlines()
        return [line for line in listed if re.search(r"fedlangevin|mpirun|prted|srun|slurmstepd", line)]


def missing_programs() -> list[str]:
    """Return the programs that a cluster needs and this machine lacks."""
    path = f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}"
    return [program for program in PROGRAMS if shutil.which(program, path=path) is None]
