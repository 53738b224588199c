#!/usr/bin/env bash
# Check everything: lint, types, the tests without MPI, then those of tests/mpi on 1, 2, 3 and 4 ranks.
#
# Those of tests/slurm and tests/hosts are skipped, saying why, where there is no SLURM, no root or no namespaces.
#
#   bash launch/test.sh                 all of it
#   bash launch/test.sh -k fald -x      the same with options of pytest: here, the tests with such a name
set -euo pipefail
cd "$(dirname "$0")/.."
bash launch/setup.sh test docs torch mnist parquet fastest-mixing reference
export PATH=$PWD/.venv/bin:$PATH

# With options, no test at all may be left (pytest's status 5); without, nothing but success will do.
options=$#
none_selected() { [ "$1" = 5 ] && [ "$options" -gt 0 ]; }

ruff check .
ruff format --check .
mypy

# ArviZ notes its first import of a day in a file: two processes that do so at once can fail.
python -W ignore -c "import arviz"

timeout --foreground -k 10 1200 pytest -n 2 --dist loadfile --durations=12 --ignore=tests/mpi "$@" || none_selected $?

# --expect-ranks makes a test that was skipped without need a failure (tests/mpi/conftest.py).
for ranks in 1 2 3 4; do
  timeout --foreground -k 10 600 python -m fedlangevin_mpi.runtime.launcher $ranks \
    python -m mpi4py -m pytest -p no:cacheprovider --with-mpi --expect-ranks=$ranks tests/mpi "$@" || none_selected $?
done
