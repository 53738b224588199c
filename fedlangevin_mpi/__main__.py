"""`python -m fedlangevin_mpi` is `fedlangevin`."""

from fedlangevin_mpi.cli import main

if __name__ == "__main__":
    main()
