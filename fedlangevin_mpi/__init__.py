"""Federated and decentralised Bayesian sampling over MPI."""

from __future__ import annotations

__version__ = "0.1.0"
