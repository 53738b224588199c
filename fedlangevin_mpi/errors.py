"""The errors a user can meet, each with the exit status the command line gives it."""

from __future__ import annotations


class FedLangevinError(Exception):
    """A run that cannot go on. Its text says what was wrong, where, and what is allowed.

    Attributes:
        exit_status: of the command line.
        agreed: whether every rank of the run raises it, so that none waits for another.
    """

    exit_status = 1
    agreed = False

    @staticmethod
    def combined(first: FedLangevinError, texts: list[str]) -> FedLangevinError:
        """Return one error for what several ranks found, with the exit status of the first."""
        error = FedLangevinError("\n".join(texts))
        error.exit_status = first.exit_status
        return error


class ConfigError(FedLangevinError):
    """The config or the command line is wrong; nothing was written."""

    exit_status = 2


class ShardError(FedLangevinError):
    """A client's data cannot be read or do not fit the model."""

    def __init__(self, client: int, origin: str, problem: str) -> None:
        super().__init__(f"client {client} ({origin}): {problem}")
        self.client = client
        self.origin = origin
        self.problem = problem

    def __reduce__(self) -> tuple[type[ShardError], tuple[int, str, str]]:
        return type(self), (self.client, self.origin, self.problem)


class DivergedError(FedLangevinError):
    """A position stopped being finite."""


class StoreError(FedLangevinError):
    """A run's folder cannot be read or written."""


class StoppedError(FedLangevinError):
    """The run was stopped early with a complete checkpoint; `resume` goes on."""

    exit_status = 75
