"""How one node is told from the others: a colour, and with it a dash of its lines and a shape.

``hues.css`` has the colours. A node's place selects them.
"""

from __future__ import annotations

from tfos_lab.core.markup import Html, h

# So many colours there are; farther nodes have them again, with other dashes and shapes.
HUES = 16
# Dashes of lines, in pixels; nodes that have the same one have colours that anybody can tell apart.
DASHES = ("", "6 2.5", "2 2", "8 2 2 2")
# Corners of marks around a point: square, circle (which has none), triangle, diamond.
_CORNERS = ("-3,-3 3,-3 3,3 -3,3", "", "0,-4 4,3 -4,3", "0,-4.2 4.2,0 0,4.2 -4.2,0")


def hue_at(place: int) -> int:
    """Return the number of a place's colour."""
    return place % HUES


def dash_at(place: int) -> int:
    """Return the number of a place's dash and shape.

    Examples
    --------
    >>> len({(hue_at(place), dash_at(place)) for place in range(64)})
    64
    """
    return (place + place // HUES) % len(DASHES)


def draw_mark(place: int, x: float, y: float) -> Html:
    """Return a node's shape at a point of an SVG drawing."""
    points = _CORNERS[dash_at(place)]
    tag, radius = ("polygon", None) if points else ("circle", "3.2")
    at = f"translate({x:g} {y:g})"
    return h(tag, points=points or None, r=radius, cls="tfos-shape", transform=at, fill="currentColor")


def draw_line(place: int, path: str) -> Html:
    """Return a node's line as an SVG path."""
    look = {"fill": "none", "stroke": "currentColor", "stroke_width": "1.4", "stroke_linejoin": "round"}
    return h("path", d=path, **look, stroke_dasharray=DASHES[dash_at(place)] or None)


def draw_sample(place: int) -> Html:
    """Return a piece of a node's line with its shape, for legends."""
    drawn = (draw_line(place, "M0 5H30"), draw_mark(place, 15, 5))
    hue = f"tfos-sample tfos-hue{hue_at(place)}"
    return h("svg", *drawn, cls=hue, viewBox="0 0 30 10", width=30, height=10, aria_hidden="true")
