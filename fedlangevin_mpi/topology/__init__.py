"""Who talks to whom: communication graphs, and the mixing matrices that weigh what neighbours say."""

from __future__ import annotations

from fedlangevin_mpi.topology.graph import (
    Topology,
    components,
    disconnection_warning,
    read_topology,
    topologies,
    without,
)
from fedlangevin_mpi.topology.mixing import check, fingerprint, mixing_matrix
from fedlangevin_mpi.topology.spectrum import Spectrum, StepSizeBound, spectrum, step_size_bound
from fedlangevin_mpi.topology.weights import weight_rules

__all__ = [
    "Spectrum",
    "StepSizeBound",
    "Topology",
    "check",
    "components",
    "disconnection_warning",
    "fingerprint",
    "mixing_matrix",
    "read_topology",
    "spectrum",
    "step_size_bound",
    "topologies",
    "weight_rules",
    "without",
]
