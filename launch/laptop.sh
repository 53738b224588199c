#!/usr/bin/env bash
# Sample who survived the Titanic with FALD and with VR-FALD*, ten clients on four ranks, and compare the two.
#
#   bash launch/laptop.sh               makes .venv first; FEDLANGEVIN_MPI and PYTHON as in launch/setup.sh
#
# Run it as often as you like: it replaces its own two folders, runs/titanic-fald and runs/titanic-vr-fald.
set -euo pipefail
cd "$(dirname "$0")/.."
bash launch/setup.sh

# What `run` prints at its end is kept in the run's folder, and shown for both runs at the end.
sample() {
  echo "Sampling with $1 ..."
  .venv/bin/fedlangevin run launch/configs/titanic.yaml "${@:3}" --ranks 4 --output "$2" --force >/dev/null
}
sample FALD runs/titanic-fald
sample 'VR-FALD*' runs/titanic-vr-fald algorithm.name=vr_fald

.venv/bin/python launch/compare.py runs/titanic-fald runs/titanic-vr-fald
echo
.venv/bin/fedlangevin report runs/titanic-fald runs/titanic-vr-fald --output runs/titanic.html
cat <<'END'

The clients' data are very unlike, so that between rounds each drifts towards a posterior of its own: this biases FALD.
VR-FALD* corrects for it and sends more bytes. Where the two differ, trust VR-FALD*.
END
