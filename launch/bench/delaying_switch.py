"""A network switch in user space that delivers every frame a fixed time after it was sent. Needs /dev/net/tun.

Started on the head of emulated hosts, it makes the `eth0` of each: `delaying_switch.py SECONDS PID=ADDRESS ...`, where
a process stands for the host whose network it has. Prints `ready` and ends with its standard input.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

_SET_INTERFACE, _TAP, _NO_HEADER = 0x400454CA, 0x0002, 0x1000  # from linux/if_tun.h
_LONGEST_FRAME = 2048
_STANDARD_INPUT = 0


def make_port(name: str, pid: str, address: str) -> int:
    """Make the `eth0` of a host and return the descriptor of its other end."""
    port = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(port, _SET_INTERFACE, struct.pack("16sH22x", name.encode(), _TAP | _NO_HEADER))
    subprocess.run(["ip", "link", "set", name, "netns", pid, "name", "eth0"], check=True)
    for change in (["addr", "add", f"{address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
        subprocess.run(["nsenter", "--target", pid, "--net", "ip", *change], check=True)
    return port


def switch(ports: list[int], delay: float) -> None:
    """Deliver frames until standard input is closed."""
    where: dict[bytes, int] = {}  # the port behind which an address was seen
    under_way: collections.deque[tuple[float, int, bytes]] = collections.deque()
    while True:
        wait = max(0.0, under_way[0][0] - time.perf_counter()) if under_way else None
        readable: list[int] = select.select([*ports, _STANDARD_INPUT], [], [], wait)[0]
        if _STANDARD_INPUT in readable:
            return
        for port in readable:
            with contextlib.suppress(BlockingIOError):
                frame = os.read(port, _LONGEST_FRAME)
                where[frame[6:12]] = port
                under_way.append((time.perf_counter() + delay, port, frame))
        while under_way and under_way[0][0] <= time.perf_counter():
            _, source, frame = under_way.popleft()
            known = where.get(frame[:6])
            for port in [known] if known is not None else [port for port in ports if port != source]:
                with contextlib.suppress(OSError):  # a full queue loses a frame, as any switch's does
                    os.write(port, frame)


if __name__ == "__main__":
    with contextlib.suppress(PermissionError):  # ranks that spin must not delay it further
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    hosts = [argument.split("=") for argument in sys.argv[2:]]
    made = [make_port(f"port{i}", *host) for i, host in enumerate(hosts)]
    print("ready", flush=True)
    switch(made, float(sys.argv[1]))
