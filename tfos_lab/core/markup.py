"""HTML that cannot forget to escape: text becomes text, and only what `h` has made is markup. Pure."""

from __future__ import annotations

import html


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def h(tag: str, *children: object, **attributes: object) -> Html:
    """Make an element; text is escaped, elements are not, and None is left out.

    Of attributes, ``cls`` is ``class``, and an underscore a hyphen. True makes one without a value, and None and False
    leave it out.

    Examples
    --------
    >>> h("b", "a < b", h("i", "c"), None, cls="x", data_do="stop", title='"', hidden=True, open=False)
    '<b class="x" data-do="stop" title="&quot;" hidden>a &lt; b<i>c</i></b>'
    """
    told = "".join(_attribute(name, value) for name, value in attributes.items())
    return Html(f"<{tag}{told}>{join(*children)}</{tag}>")


def join(*children: object) -> Html:
    """Return elements and text one after the other."""
    return Html("".join(map(_content, children)))


def _content(child: object) -> str:
    return child if isinstance(child, Html) else "" if child is None else html.escape(str(child))


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    shown = "class" if name == "cls" else name.replace("_", "-")
    return f" {shown}" if value is True else f' {shown}="{html.escape(str(value))}"'
