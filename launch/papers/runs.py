"""What the scripts of this folder share: the networks of the DE-SGLD paper, and runs as a user starts them."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedlangevin_mpi import open_run
from fedlangevin_mpi.config import RunConfig, read_config
from fedlangevin_mpi.store.reader import Run

ROOT = Path(__file__).resolve().parents[2]
NETWORKS = {
    name: str(ROOT / "topologies" / "de-sgld" / f"{file}.yaml")
    for name, file in {"full": "fully-connected", "ring": "circular", "disconnected": "disconnected"}.items()
}


def arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser of what every script takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", type=Path, default=Path("runs/papers"), metavar="DIR", help="of runs and figures")
    parser.add_argument("--ranks", type=int, default=1, metavar="N", help="that mpirun starts")
    parser.add_argument("--seed", type=int, default=1, help="of the first data set")
    return parser


def sample(config: Path, directory: Path, ranks: int, overrides: dict[str, Any]) -> Run:
    """Run a config with other values for some of its (dotted) keys, replacing an older run in the folder."""
    command = [sys.executable, "-m", "fedlangevin_mpi", "run", str(config), *_texts(overrides)]
    options = ["--output", str(directory), "--ranks", str(ranks), "--force"]
    finished = subprocess.run([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if finished.returncode:
        sys.exit(f"{directory}: {finished.stderr}")
    return open_run(directory)


def with_overrides(config: Path, overrides: dict[str, Any]) -> RunConfig:
    """Return the config that `sample` would run."""
    return read_config(config, _texts(overrides))[0]


def training_rows(config: RunConfig) -> int:
    """Return how many rows all clients have together."""
    clients = config.clients or 1
    return sum(len(shard.arrays["y"]) for shard in config.data.shards(range(clients), clients, config.seed))


def _texts(overrides: dict[str, Any]) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in overrides.items()]


def save(figure: Figure, stem: Path) -> None:
    """Write a figure as PNG and SVG, and say so."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".png", ".svg"):
        figure.savefig(stem.with_suffix(suffix), dpi=150)
    print(f"figures: {stem}.png, {stem}.svg")
