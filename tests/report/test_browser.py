"""Pages in a browser: nothing is said on its console, nothing else is asked for, nothing sticks out."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fedlangevin_mpi.report.html import write_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-default-apps"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # its own errands too
]
LOOK = """<script>addEventListener("load", () => {
  const boxes = [...document.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect());
  const text = document.querySelector("svg text");
  document.title = JSON.stringify({
    asked: performance.getEntriesByType("resource").map(entry => entry.name),
    page: document.documentElement.scrollWidth,
    window: innerWidth,
    drawn: boxes.filter(box => box.width > 100 && box.height > 50).length,
    ink: text && getComputedStyle(text).fill,
    ground: getComputedStyle(document.body).backgroundColor,
  });
})</script>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")


def opened(page: Path, width: int = 1000, dark: bool = False) -> tuple[str, str]:
    """Return a page's document, and what the browser said."""
    command = [
        *(BROWSER, *QUIET, f"--user-data-dir={page.parent / 'profile'}", f"--window-size={width},900"),
        *(f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--enable-logging=stderr"),
        *("--virtual-time-budget=2000", "--dump-dom", page.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, done.stderr


def looked_at(page: Path, **how: Any) -> dict[str, Any]:
    """Return what a script sees of a page, which is let to ask for whatever it wants."""
    text = page.read_text()
    page.write_text(re.sub(r"<meta http-equiv[^>]*>", "", text).replace("</body>", LOOK + "</body>"))
    document, _ = opened(page, **how)
    found: dict[str, Any] = json.loads(re.search(r"<title>(\{.*?\})</title>", document)[1])
    return found


def is_light(colour: str) -> bool:
    return sum(map(int, re.findall(r"\d+", colour)[:3])) > 3 * 127


@pytest.mark.parametrize("names", [("fald",), ("ring",), ("dsvgd",), ("fald", "vr_fald")], ids="-".join)
def test_a_browser_has_nothing_to_say_of_a_page(runs, tmp_path, names):
    document, said = opened(write_report([runs[name].directory for name in names], tmp_path / "page.html"))
    assert "</main>" in document
    assert "CONSOLE" not in said


@pytest.mark.parametrize(("width", "dark"), [(1000, False), (500, True)])
@pytest.mark.parametrize("names", [("ring",), ("fald", "vr_fald")], ids="-".join)
def test_a_page_asks_for_nothing_and_fits_its_window_in_both_themes(runs, tmp_path, names, width, dark):
    page = write_report([runs[name].directory for name in names], tmp_path / "page.html")
    figures = page.read_text().count("<figure>")
    found = looked_at(page, width=width, dark=dark)
    assert found["asked"] == []
    assert found["page"] <= found["window"]
    assert found["drawn"] == figures
    assert (is_light(found["ink"]), is_light(found["ground"])) == (dark, not dark)


def test_a_page_that_speaks_and_asks_is_noticed(tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<body><img src="http://127.0.0.1:9/x.png"><script>console.log("said")</script></body>')
    assert "CONSOLE" in opened(page)[1]
    assert looked_at(page)["asked"] == ["http://127.0.0.1:9/x.png"]
