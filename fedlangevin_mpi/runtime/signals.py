"""Requests to stop: signals, while a run is going. They are noted here, and acted on between two kernel calls."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_STOPPING = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Notes signals that ask this rank to stop; a context manager, which leaves the handlers as they were before.

    A second SIGINT interrupts at once. What came to a request around this one is noted here, too. Outside the main
    thread, where Python handles no signals, it does nothing.

    Attributes:
        number: of the signal that came; 0 where none did.
    """

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            outer = getattr(signal.getsignal(signal.SIGUSR1), "__self__", None)
            self.number = outer.number if isinstance(outer, StopRequest) else 0
            self._before = {number: signal.signal(number, self._note) for number in _STOPPING}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            # None: what was there was not installed by Python, which cannot put it back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _note(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and self.number == number:
            raise KeyboardInterrupt
        self.number = number
