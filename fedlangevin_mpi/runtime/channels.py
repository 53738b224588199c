"""Which exchange a run declares: the one that its algorithm communicates by."""

from __future__ import annotations

from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.comm.average import AverageChannel
from fedlangevin_mpi.comm.device_average import DeviceAverageChannel
from fedlangevin_mpi.comm.gossip import GossipChannel
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.networks.device import current
from fedlangevin_mpi.runtime.prepare import Prepared

Channel = AverageChannel | DeviceAverageChannel | GossipChannel


def channel_of(world: World, prepared: Prepared, compiled: bool) -> Channel:
    """Declare the exchange that the algorithm's `communicates` names. Collective.

    Raises:
        ConfigError: MPI cannot take messages from a GPU's memory, and was to.
    """
    config, shape = prepared.config, (prepared.config.chains, prepared.dim)
    dtype = prepared.theta.dtype
    if config.messages == "device":
        return DeviceAverageChannel(world, *shape, dtype, current())
    if not isinstance(config.algorithm, Gossiping):
        return AverageChannel(world, *shape, dtype, compiled)
    assert prepared.mixing is not None
    matrices, exchange = prepared.mixing.matrices, config.algorithm.exchange
    return GossipChannel(world, prepared.placement.of_rank, matrices, *shape, dtype, compiled, exchange)
