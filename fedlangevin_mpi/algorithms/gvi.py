"""GVI, global variational inference with a Gaussian: PVI with one agent that holds all data (equations in `pvi`)."""

from __future__ import annotations

from typing import ClassVar, Literal

from fedlangevin_mpi.algorithms.base import Communicates
from fedlangevin_mpi.algorithms.pvi import GaussianVariational


class Gvi(GaussianVariational):
    """GVI on pooled data: PVI's fit with one factor (Sato 2001; Bui et al. 2018)."""

    summary: ClassVar[str] = "global variational inference: one Gaussian fitted on one client, the centralised baseline"
    communicates: ClassVar[Communicates] = "never"

    name: Literal["gvi"] = "gvi"
