"""Which exchange a run declares: the one that its algorithm communicates by."""

from __future__ import annotations

from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.comm.average import AverageChannel
from fedlangevin_mpi.comm.gossip import GossipChannel
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.runtime.prepare import Prepared


def channel_of(world: World, prepared: Prepared, compiled: bool) -> AverageChannel | GossipChannel:
    """Declare the exchange that the algorithm's `communicates` names. Collective."""
    config, shape = prepared.config, (prepared.config.chains, prepared.dim)
    dtype = prepared.theta.dtype
    if not isinstance(config.algorithm, Gossiping):
        return AverageChannel(world, *shape, dtype, compiled)
    assert prepared.mixing is not None
    matrices, exchange = prepared.mixing.matrices, config.algorithm.exchange
    return GossipChannel(world, prepared.placement.of_rank, matrices, *shape, dtype, compiled, exchange)
