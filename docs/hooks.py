"""Pages that are made of the package itself: the home page of README.md, and one of every sampler."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from fedlangevin_mpi.algorithms import algorithms
from fedlangevin_mpi.algorithms.base import Method

LEAVES = {
    "average": "What goes into an average, in a round. Never a row, a label or a gradient of one example.",
    "gossip": "Positions, to neighbours in the graph only.",
    "server": "Rows of the server's state (particles, chains or natural parameters) that it worked on, in its turn.",
    "never": "Nothing: this is a sampler on one client.",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the made pages."""
    readme = Path(config.config_file_path).with_name("README.md").read_text(encoding="utf-8")
    home = re.sub(r"\[([A-Z]+\.(?:md|cff))\]\(\1\)", r"`\1`", readme)  # these files are in the repository alone
    files.append(File.generated(config, "index.md", content=home))
    names = sorted(algorithms())
    rows = "\n".join(f"| [`{name}`]({name}.md) | {algorithms()[name].summary} |" for name in names)
    table = f"# Samplers\n\n| name | what it is |\n|---|---|\n{rows}\n"
    files.append(File.generated(config, "samplers/index.md", content=table))
    for name in names:
        files.append(File.generated(config, f"samplers/{name}.md", content=page(name, algorithms()[name])))
    return files


def page(name: str, algorithm: type[Method]) -> str:
    """Return a sampler's page: what its module says, its keys, what leaves a client, its kernel."""
    said = inspect.getdoc(inspect.getmodule(algorithm)) or ""
    lines = getattr(algorithm, "kernel", None) or algorithm.work  # type: ignore[attr-defined]  # one of the two is there
    return "\n\n".join(
        [
            f"# `{name}`",
            said.replace("VR-FALD*", r"VR-FALD\*"),
            "## Keys",
            keys(algorithm),
            "## What leaves a client",
            leaves(algorithm),
            "## The kernel",
            f"```python\n{textwrap.dedent(inspect.getsource(lines))}```",
        ]
    )


def leaves(algorithm: type[Method]) -> str:
    """Return what an algorithm's exchanges carry, in words."""
    carried = inspect.getdoc(algorithm.traffic) if hasattr(algorithm, "traffic") else ""
    return f"{LEAVES.get(algorithm.communicates, '')} {carried}".strip()


def keys(algorithm: type[Method]) -> str:
    """Return the table of an algorithm's hyperparameters, from its schema."""
    schema = algorithm.model_json_schema()
    needed = schema.get("required", [])
    rows = ["| key | allowed | default | meaning |", "|---|---|---|---|"]
    for key, about in schema["properties"].items():
        if key != "name":
            default = "needed" if key in needed else f"`{about.get('default')}`"
            rows.append(f"| `{key}` | {allowed(about)} | {default} | {about.get('description', '')} |")
    return "\n".join(rows)


def allowed(about: dict[str, Any]) -> str:
    """Return what a key may be, of its JSON schema."""
    if "enum" in about:
        return ", ".join(f"`{value}`" for value in about["enum"])
    if "anyOf" in about:
        return " or ".join(dict.fromkeys(allowed(choice) for choice in about["anyOf"] if choice.get("type") != "null"))
    if "$ref" in about or "oneOf" in about:
        return "a schedule"
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {about[bound]}" for bound, sign in bounds.items() if bound in about]
    return " ".join([about.get("type", "any"), ", ".join(limits)]).strip()
