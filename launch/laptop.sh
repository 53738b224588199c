#!/usr/bin/env bash
# Sample who survived the Titanic with FALD and VR-FALD*, ten clients on four ranks, and compare the two.
#
#   bash launch/laptop.sh               makes .venv first; FEDLANGEVIN_MPI and PYTHON as in launch/setup.sh
#
# Runs again as often as you like: it replaces its own two folders, runs/titanic-fald and runs/titanic-vr-fald.
set -euo pipefail
cd "$(dirname "$0")/.."
bash launch/setup.sh

# The summary of each run stays in its folder; both are shown side by side at the end.
sample() { .venv/bin/fedlangevin run launch/configs/titanic.yaml "$@" --ranks 4 --force >/dev/null; }
sample --output runs/titanic-fald
sample algorithm.name=vr_fald --output runs/titanic-vr-fald

.venv/bin/python launch/compare.py runs/titanic-fald runs/titanic-vr-fald
