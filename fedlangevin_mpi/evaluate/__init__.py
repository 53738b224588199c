"""What a run is worth: diagnostics, predictive metrics, exact laws. Works without MPI."""
