"""`report.html`: one file that opens from disk, asks for nothing else, and has every value escaped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedlangevin_mpi.report.comparison import comparison
from fedlangevin_mpi.report.run_page import run_page
from fedlangevin_mpi.store.atomic import replacing
from fedlangevin_mpi.store.reader import Run, open_run

REPORT_FILE = "report.html"


def write_report(directories: Sequence[Path], path: Path | None = None) -> Path:
    """Write the report of a run, or the comparison of several, and return where it is.

    Args:
        directories: folders of runs.
        path: of the file; None: `report.html` in the first folder (`comparison.html` for several).

    Raises:
        StoreError: a run cannot be read, or the report not written.
    """
    runs = [open_run(directory) for directory in directories]
    if len(runs) == 1:
        text, name = render("run.html", page=run_page(runs[0])), REPORT_FILE
    else:
        text, name = render("comparison.html", page=comparison(runs)), "comparison.html"
    target = path or directories[0] / name
    with replacing(target) as partial:
        partial.write_text(text, encoding="utf-8")
    return target


def fragment(run: Run) -> str:
    """Return a run in a few lines of HTML, for a notebook's cell."""
    return render("fragment.html", run=run)


def render(template: str, **values: Any) -> str:
    """Return a page of `templates/`."""
    environment = Environment(
        loader=PackageLoader("fedlangevin_mpi.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["number"] = number
    return environment.get_template(template).render(**values)


def number(value: float | None, form: str = ".4g") -> str:
    """Return a number for people; a dash where there is none."""
    return "-" if value is None else format(value, form)
