"""Several hosts on this machine: Linux namespaces with names, addresses and shared memory of their own.

Ranks on two of them talk TCP, and an MPI or a batch system takes them for machines. The file system is the same on
all. Nothing is left of them, whatever happens: they and all that runs on them are processes of one PID namespace,
which the kernel ends as soon as the standard input of its first process is closed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SUBNET = "10.213.0"
HEAD = "head"

# The first process of the namespace. $1: folder, $2: number of hosts, $3: subnet, $4: bridge, or nothing between hosts.
_MACHINE_ROOM = """
set -eu
hostname head
mount --bind "$1/hosts" /etc/hosts
ip link set lo up
if [ "$4" = bridge ]; then
  ip link add br0 type bridge
  ip addr add "$3.254/24" dev br0
  ip link set br0 up
fi
for i in $(seq "$2"); do
  unshare --net --uts --mount sh -euc '
    hostname "h$2"
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    ip link set lo up
    echo $$ >"$1/pid.new" && mv "$1/pid.new" "$1/h$2.pid"
    exec sleep infinity' _ "$1" "$i" &
  until [ -s "$1/h$i.pid" ]; do sleep 0.01; kill -0 $!; done
  host=$(cat "$1/h$i.pid")
  if [ "$4" = bridge ]; then
    ip link add "port$i" master br0 type veth peer name eth0 netns "$host"
    ip link set "port$i" up
    nsenter --target "$host" --net ip addr add "$3.$i/24" dev eth0
    nsenter --target "$host" --net ip link set eth0 up
  fi
done
echo ready
exec env --ignore-signal=CHLD cat >/dev/null  # the kernel reaps the orphans of a first process that ignores SIGCHLD
"""

# A remote shell, as mpirun wants one: options, then the host, then the command.
_REMOTE_SHELL = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
[ -s "$(dirname "$0")/$host.pid" ] || { echo "no host $host" >&2; exit 255; }
exec nsenter --target "$(cat "$(dirname "$0")/$host.pid")" --net --uts --mount -- sh -c "$*"
"""


class EmulatedHosts:
    """Hosts h1, h2, ... and the host `head`, on one network. A context manager.

    Args:
        folder: an empty folder for their files.
        count: how many hosts besides `head`.
        bridged: whether they are connected; without, somebody else gives each its `eth0`.

    Raises:
        OSError: this user may not make them here, or a program for it (util-linux, iproute2) is missing.
    """

    def __init__(self, folder: Path, count: int, bridged: bool = True) -> None:
        self.folder = folder
        self.names = [f"h{i + 1}" for i in range(count)]
        self.addresses = {name: f"{SUBNET}.{i + 1}" for i, name in enumerate(self.names)} | {HEAD: f"{SUBNET}.254"}
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in self.addresses.items())]
        (folder / "hosts").write_text("\n".join(lines) + "\n")
        self.remote_shell = folder / "remote-shell"
        self.remote_shell.write_text(_REMOTE_SHELL)
        self.remote_shell.chmod(0o755)
        # As another user than root: root of a user namespace, where the machine allows it.
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        apart = ["--fork", "--kill-child", "--pid", "--mount-proc", "--net", "--uts", "--mount"]
        room = ["sh", "-c", _MACHINE_ROOM, "_", str(folder), str(count), SUBNET, "bridge" if bridged else "nothing"]
        self._room = subprocess.Popen(
            ["unshare", *user, *apart, *room],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._room.stdout is not None
        assert self._room.stderr is not None
        if self._room.stdout.readline() != "ready\n":
            self.close()
            raise OSError(f"hosts cannot be emulated here: {self._room.stderr.read().strip()}")
        first = Path(f"/proc/{self._room.pid}/task/{self._room.pid}/children").read_text().strip()
        into = ["--user", "--preserve-credentials"] if user else []
        self._enter = ["nsenter", "--target", first, *into, "--pid", "--net", "--uts", "--mount", "--"]

    def __enter__(self) -> EmulatedHosts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything that runs on the hosts, and the hosts."""
        assert self._room.stdin is not None
        self._room.stdin.close()
        self._room.wait()

    def command(self, host: str, program: Sequence[str], folder: Path | None = None) -> list[str]:
        """Return the command that runs `program` on a host, in the current folder or another one."""
        there = ["env", f"--chdir={folder or Path.cwd()}", *program]
        if host == HEAD:
            return [*self._enter, *there]
        return [*self._enter, str(self.remote_shell), host, f"exec {shlex.join(there)}"]

    def run(
        self, host: str, program: Sequence[str], folder: Path | None = None, timeout: float = 60, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `program` on a host and return its status and what it printed.

        Raises:
            subprocess.TimeoutExpired: it took more than `timeout` seconds.
        """
        command = self.command(host, program, folder)
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)

    def environment(self) -> dict[str, str]:
        """Return the environment for an Open MPI `mpirun` that is started on one of the hosts and uses the others."""
        # More ranks than a host has slots are no matter of these hosts; inherited, it would put all ranks on the first.
        inherited = {k: v for k, v in os.environ.items() if k != "PRTE_MCA_rmaps_default_mapping_policy"}
        return inherited | {
            "PRTE_MCA_plm_ssh_agent": str(self.remote_shell),
            # They share this machine's cores, and Open MPI does not know it: an Allreduce of 16 ms instead of 0.06.
            "PRTE_MCA_hwloc_default_binding_policy": "none",
            "OMPI_MCA_mpi_yield_when_idle": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }

    def pid(self, host: str) -> str:
        """Return the process whose namespaces are the host's, in the numbering of `head`."""
        return (self.folder / f"{host}.pid").read_text().strip()
