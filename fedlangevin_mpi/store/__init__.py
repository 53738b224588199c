"""A run's folder: draws streamed to one HDF5 file a rank, read back lazily, exported to NetCDF."""
