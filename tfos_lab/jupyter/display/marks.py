"""How one node is told from the others in saved output: a colour, and with it a dash of its lines and a shape.

``extensions/dashboard/src/marks.ts`` draws the same live; ``hues.css`` has the colours. A node's place selects them.
"""

from __future__ import annotations

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


def mark_attributes(place: int) -> str:
    """Return the attributes of an element that is drawn as the node at this place."""
    return f'class="tfos-hue{hue_at(place)}" data-dash="{dash_at(place)}"'


def draw_mark(place: int, x: float, y: float) -> str:
    """Return a node's shape at a point of an SVG drawing."""
    points = _CORNERS[dash_at(place)]
    at = f'class="tfos-shape" transform="translate({x:g} {y:g})" fill="currentColor"'
    return f'<polygon points="{points}" {at}/>' if points else f'<circle r="3.2" {at}/>'


def draw_line(place: int, path: str) -> str:
    """Return a node's line as an SVG path."""
    dash = DASHES[dash_at(place)]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linejoin="round"{dashes}/>'


def draw_sample(place: int) -> str:
    """Return a piece of a node's line with its shape, for legends."""
    return (
        f'<svg class="tfos-sample tfos-hue{hue_at(place)}" viewBox="0 0 30 10" width="30" height="10" '
        f'aria-hidden="true">{draw_line(place, "M0 5H30")}{draw_mark(place, 15, 5)}</svg>'
    )
