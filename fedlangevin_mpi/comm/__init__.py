"""MPI: the world of ranks and the channels between them. The only room that imports mpi4py."""
