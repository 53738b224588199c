"""Matplotlib figures as inline SVG that follows a page's theme: what is ink takes the page's text colour."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
from cycler import cycler
from markupsafe import Markup, escape
from matplotlib.figure import Figure

_INK = "#010203"  # no other colour of a figure, so that it can be found again in the SVG
PALETTE = ("#2f7fc1", "#d9730d", "#2e9e6b", "#b4539b", "#8a7d1f", "#c94f4f", "#4aa3b5", "#7a68c4")
"""Colours of chains, clients and runs; each has a contrast above 3 with white and with near black."""


class Picture(NamedTuple):
    """A figure on a page.

    Attributes:
        svg: the drawing, safe to put into HTML.
        caption: what it shows, in one or two sentences.
    """

    svg: Markup
    caption: str


@contextmanager
def inked() -> Iterator[None]:
    """Make figures within the block on a transparent ground, with ink that `picture` turns into the text colour."""
    colours = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "legend.labelcolor")
    settings: Any = dict.fromkeys(colours, _INK) | {
        "axes.facecolor": "none",
        "axes.prop_cycle": cycler(color=PALETTE),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.facecolor": "none",
        "font.size": 10,
        "legend.frameon": False,
        "lines.linewidth": 1.0,
        "svg.fonttype": "none",
        "text.parse_math": False,  # a dollar sign in a name begins no formula
    }
    with mpl.rc_context(settings):
        yield


def picture(figure: Figure, name: str, alternative: str, caption: str) -> Picture:
    """Return a figure as inline SVG.

    Args:
        figure: made in an `inked` block.
        name: of the figure on its page; keeps the ids within apart from those of other figures.
        alternative: what the figure says, for those who do not see it.
        caption: what it shows.
    """
    stream = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    drawing = stream.getvalue().replace(_INK, "currentColor")
    body = drawing[drawing.index("<svg") :]
    head, rest = body.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    opening = f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} role="img" aria-label="{escape(alternative)}">'
    return Picture(Markup(opening + _own_ids(rest, name)), caption)


def _own_ids(drawing: str, name: str) -> str:
    # Matplotlib counts its groups from 1 in every figure, and an id must be alone on its page.
    drawing = re.sub(r'\bid="', f'id="{name}-', drawing)
    drawing = drawing.replace("url(#", f"url(#{name}-")
    return drawing.replace('xlink:href="#', f'xlink:href="#{name}-')
