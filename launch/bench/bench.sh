#!/usr/bin/env bash
# Measure the claims about speed on two ranks or three; the head of each bench says which. Takes about five minutes each.
#
#   bash launch/bench/bench.sh                    launch/bench/fald.py
#   bash launch/bench/bench.sh gossip [a b c d]   launch/bench/gossip.py, some parts of it
#   bash launch/bench/bench.sh latency [MS ...]   launch/bench/latency.py, on two emulated hosts
#   bash launch/bench/bench.sh server             launch/bench/server.py, on three ranks: a server and two agents
#
# Quote the ratios: both sides of each are measured in turn, in one run, on the machine as it is.
set -euo pipefail
cd "$(dirname "$0")/../.."
bash launch/setup.sh torch bench
export OMP_NUM_THREADS=1
bench=${1:-fald}
[ "$bench" != latency ] || exec .venv/bin/python launch/bench/latency.py "${@:2}"
ranks=$([ "$bench" = server ] && echo 3 || echo 2)
.venv/bin/python -m fedlangevin_mpi.runtime.launcher "$ranks" .venv/bin/python -m mpi4py "launch/bench/$bench.py" "${@:2}"
