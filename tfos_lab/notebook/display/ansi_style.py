"""The style that ANSI colour sequences select (SGR, ``ESC [ … m``), as CSS classes."""

from __future__ import annotations

_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_FLAGS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike"}
_FLAG_ENDS = {21: (1,), 22: (1, 2), 23: (3,), 24: (4,), 27: (7,), 29: (9,)}


class AnsiStyle:
    """The colours and flags of the characters that follow; `classes` are their CSS classes."""

    def __init__(self) -> None:
        self._foreground = ""
        self._background = ""
        self._flags: set[int] = set()
        self.classes = ""

    def change(self, parameters: str) -> None:
        """Apply the parameters of one sequence, such as ``1;31``."""
        codes = [int(code) if code.isdigit() else 0 for code in parameters.replace(":", ";").split(";")]
        while codes:
            self._apply(codes.pop(0), codes)
        names = [_FLAGS[flag] for flag in sorted(self._flags)] + [self._foreground, self._background]
        self.classes = " ".join(f"tfos-{name}" for name in names if name)

    def _apply(self, code: int, rest: list[int]) -> None:
        if code == 0:
            self._foreground = self._background = ""
            self._flags.clear()
        elif code in _FLAGS:
            self._flags.add(code)
        elif code in _FLAG_ENDS:
            self._flags.difference_update(_FLAG_ENDS[code])
        elif code == 38:
            self._foreground = _named("fg", _extended_colour(rest))
        elif code == 48:
            self._background = _named("bg", _extended_colour(rest))
        elif 30 <= code <= 37 or code == 39 or 90 <= code <= 97:
            self._foreground = _named("fg", _basic_colour(code))
        elif 40 <= code <= 47 or code == 49 or 100 <= code <= 107:
            self._background = _named("bg", _basic_colour(code - 10))


def _basic_colour(code: int) -> str:
    if code == 39:
        return ""
    return _COLOURS[code - 30] if code < 90 else f"bright-{_COLOURS[code - 90]}"


def _extended_colour(rest: list[int]) -> str:
    """Remove the parameters of a 256-colour or RGB colour from ``rest``; return the nearest of the 16 colours."""
    kind = rest.pop(0) if rest else 0
    if kind == 5 and rest:
        return _nearest(*_palette(rest.pop(0)))
    if kind == 2 and len(rest) >= 3:
        red, green, blue = rest[:3]
        del rest[:3]
        return _nearest(red, green, blue)
    return ""


def _palette(index: int) -> tuple[int, int, int]:
    if index < 16:
        if index == 8:
            return (128, 128, 128)
        level = 255 if index > 8 else 170
        return (level * (index & 1), level * (index >> 1 & 1), level * (index >> 2 & 1))
    if index < 232:
        cube = index - 16
        return (cube // 36 * 51, cube // 6 % 6 * 51, cube % 6 * 51)
    grey = 8 + (min(index, 255) - 232) * 10
    return (grey, grey, grey)


def _nearest(red: int, green: int, blue: int) -> str:
    high = max(red, green, blue)
    if high - min(red, green, blue) < 32:
        return "black" if high < 48 else "bright-black" if high < 150 else "white"
    bits = sum(1 << bit for bit, level in enumerate((red, green, blue)) if level > high * 0.55)
    return _COLOURS[bits] if high < 200 else f"bright-{_COLOURS[bits]}"


def _named(ground: str, colour: str) -> str:
    return f"{ground}-{colour}" if colour else ""
