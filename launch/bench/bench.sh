#!/usr/bin/env bash
# Measure the claims about speed on two ranks: python launch/bench/fald.py says which. Takes about five minutes.
#
#   bash launch/bench/bench.sh
#
# Quote the ratios: both sides of each are measured in turn, in one run, on the machine as it is.
set -euo pipefail
cd "$(dirname "$0")/../.."
bash launch/setup.sh torch bench
export OMP_NUM_THREADS=1
.venv/bin/python -m fedlangevin_mpi.runtime.launcher 2 .venv/bin/python -m mpi4py launch/bench/fald.py "$@"
