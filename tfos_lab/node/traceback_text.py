"""Formats a remote exception for a notebook.

Frames of tfos_lab are left out, lines of notebook cells are named as the notebook names them (``Cell In[5], line 12``),
and long runs of frames inside libraries are folded.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from itertools import groupby

from tfos_lab.core import sources
from tfos_lab.texts import encodable, shorten

MAX_LINES = 200
MAX_CHARACTERS = 100_000
MAX_MESSAGE = 20_000
# Of what Keras has expected and got, in the line that informs.
_MAX_DETAIL = 200

# A run of more than _FOLD_OVER frames inside libraries is shown by its first and its last ones.
_FOLD_OVER = 5
_KEEP_FIRST = 1
_KEEP_LAST = 2

_OWN = "tfos_lab"
_GENERATED = "__autograph_generated_file"

# What stands around the informing part of a message of TensorFlow or Keras.
_STYLE = re.compile(r"\x1b\[\d*m")
_PLACE = re.compile(
    r"^\{\{function_node .*?\}\} (?:Error in user-defined function passed to .*? with iterator: \S+: )?", re.ASCII
)
_OPERATION = re.compile(r" \[Op:\w+\](?: name: ?.*)?$")
_SEVERAL = re.compile(r"\d+ root error\(s\) found")
_ONE_OF_SEVERAL = re.compile(r"\s+\(\d+\) \w+:\s+(.*)")
_OF_USER_CODE = re.compile(r"    (?:\w+\.)*\w*(?:Error|Exception)[^:]*: (.+)")
_FRAMEWORKS = frozenset({"tensorflow", "keras", "tf_keras", "tensorflow_estimator", "Python"})
# A cell is a function for Python, but not for its reader: an error's class that it has defined goes by its name.
_LOCAL = re.compile(r"^(?:\w+\.)+<locals>\.(?=[\w.]+(?::|$))", re.MULTILINE)
# Where TensorFlow lists what has led to an operation.
_DEFINED_AT = " defined at (most recent call last):"
_LISTED = re.compile(r'  File "(.+?)", line \d+, in .*')
# Frames that only pass an error on: of the constructors that dataclasses make, and of Python's pools.
_OF_DATACLASSES = ("<string>", "__init__")
_POOLS = ("multiprocessing/pool.py", "concurrent/futures/thread.py", "concurrent/futures/_base.py")

_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"


def format_remote(error: BaseException) -> tuple[str, str, str]:
    """Return the name of the exception's type, its message, and its traceback as text."""
    name = type(error).__name__
    try:
        message = str(error)
    except Exception as failure:  # noqa: BLE001 - the user's own __str__ may raise anything
        message = f"<the message could not be made: {type(failure).__name__}>"
    lines = _render(traceback.TracebackException.from_exception(error, compact=True))
    text = "\n".join(line for block in lines for line in block.rstrip("\n").split("\n"))
    return name, _with_labels(shorten(encodable(message), MAX_MESSAGE)), _limit(_with_labels(encodable(text)))


def informing_part(message: str) -> str:
    """Return what a message of TensorFlow or Keras tells, which begins with where it was.

    The traceback has the whole message. Other messages stay as they are.
    """
    lines = [_PLACE.sub("", _STYLE.sub("", line)) for line in message.split("\n")]
    if lines[0].startswith("Graph execution error"):
        # The nodes and frames where it happened are indented, or announced.
        told = [line for line in lines[1:] if line.strip() and not line.startswith((" ", "\t", "Detected at node"))]
        if told and _SEVERAL.match(told[0]):
            told = [found[1] for line in lines if (found := _ONE_OF_SEVERAL.match(line))]
    elif lines[0].startswith("Exception encountered when calling"):
        told = [line for line in lines[1:] if line.strip()]
        details = [shorten(line, _MAX_DETAIL) for line in told[1:3] if line.startswith(("Expected: ", "Received: "))]
        told = [" ".join([*told[:1], *details])] if details else told
    elif lines[0] == "in user code:":
        told = [found[1] for line in reversed(lines) if (found := _OF_USER_CODE.match(line))]
    elif _PLACE.match(message):
        told = lines
    else:
        return message
    if len(told) > 1 and told[0].endswith(":"):
        told = [" ".join(told[:2])]
    return _OPERATION.sub("", told[0]) if told else message


def _render(error: traceback.TracebackException) -> Iterator[str]:
    """Yield the blocks of lines of an exception, after those of its cause or context."""
    if error.__cause__ is not None:
        yield from _render(error.__cause__)
        yield f"\n{_CAUSE}\n\n"
    elif error.__context__ is not None and not error.__suppress_context__:
        yield from _render(error.__context__)
        yield f"\n{_CONTEXT}\n\n"
    frames = [one for one in error.stack if sources.package_of(one.filename) != _OWN and not _passes_on(one)]
    # An error inside tfos_lab, without a line of the user's, is shown whole, unless it says by itself what to do.
    told = next(iter(error.format_exception_only()))
    is_told = told.startswith((f"{_OWN}.", "tensorflow."))
    if told.startswith(f"{_OWN}.") and _FRAMEWORKS.issuperset(_library(one.filename) for one in frames):
        frames = []  # how a framework came to call tfos_lab
    if shown := list(_fold(frames if frames or is_told else error.stack)):
        yield "Traceback (most recent call last):"
        yield from shown
    yield from (_LOCAL.sub("", _without_listed(block)) for block in error.format_exception_only())
    for number, inner in enumerate(error.exceptions or (), 1):
        yield f"  --- exception {number} of the group ---"
        for block in _render(inner):
            yield "\n".join(f"  {line}" for line in block.rstrip("\n").split("\n"))


def _passes_on(frame: traceback.FrameSummary) -> bool:
    """Whether a frame only passes an error on, as those in which Keras and TensorFlow leave out their own."""
    is_raised_again = frame.name == "error_handler" and frame.filename.endswith("traceback_utils.py")
    return is_raised_again or frame.filename.endswith(_POOLS) or (frame.filename, frame.name) == _OF_DATACLASSES


def _without_listed(block: str) -> str:
    """Leave the frames of libraries, and of ours, out of what TensorFlow lists in a message."""
    lines: list[str] = []
    is_listed = False
    for line in block.split("\n"):
        if line.endswith(_DEFINED_AT):
            is_listed = True
        elif is_listed and (found := _LISTED.fullmatch(line)):
            if sources.package_of(found[1]) or found[1] == "<string>":
                continue
        elif is_listed and not line.strip():
            continue
        elif is_listed and not line.startswith("  "):
            is_listed = False
            if lines[-1].endswith(_DEFINED_AT):
                lines[-1] = lines[-1].removesuffix(_DEFINED_AT)
        lines.append(line)
    return "\n".join(lines)


def _fold(frames: Iterable[traceback.FrameSummary]) -> Iterator[str]:
    """Yield the frames' lines; repeated frames are counted, and long runs inside libraries folded."""
    runs = (list(same) for _, same in groupby(frames, key=lambda frame: (frame.filename, frame.lineno, frame.name)))
    distinct = [(run[0], len(run)) for run in runs]
    for in_library, group in groupby(distinct, key=lambda item: _library(item[0].filename) != ""):
        run_of_frames = list(group)
        hidden = run_of_frames[_KEEP_FIRST:-_KEEP_LAST] if in_library and len(run_of_frames) > _FOLD_OVER else []
        for index, (frame, times) in enumerate(run_of_frames):
            if hidden and index == _KEEP_FIRST:
                packages = ", ".join(dict.fromkeys(_library(one.filename) for one, _ in hidden))
                yield f"  … {len(hidden)} frames in {packages} …"
            if not hidden or index < _KEEP_FIRST or index >= len(run_of_frames) - _KEEP_LAST:
                yield _frame(frame)
                if times > 1:
                    yield f"  [repeated {times - 1} more times]"


def _library(filename: str) -> str:
    """Return the package that a file belongs to; "" for the user's own, and for ours."""
    package = "tensorflow" if _GENERATED in filename else sources.package_of(filename)
    return package if package != _OWN else ""


def _frame(frame: traceback.FrameSummary) -> str:
    text = traceback.StackSummary().format_frame_summary(frame).rstrip("\n")
    label = sources.label(frame.filename)
    if label is None:
        return text
    _, _, rest = text.partition("\n")
    name = "" if frame.name == "<module>" else f", in {frame.name}"
    return f"  {label}, line {frame.lineno}{name}" + (f"\n{rest}" if rest else "")


def _with_labels(text: str) -> str:
    """Name notebook cells in text that libraries have formatted, such as AutoGraph's "in user code"."""
    for filename, label in sources.labels().items():
        text = text.replace(f'File "{filename}"', label).replace(filename, label)
    return text


def _limit(text: str) -> str:
    """Shorten text to the limits: a third from its beginning, two thirds from its end."""
    lines = [shorten(line, MAX_CHARACTERS // 20) for line in text.split("\n")]
    if len(lines) > MAX_LINES:
        first = MAX_LINES // 3
        last = MAX_LINES - first - 1
        lines = [*lines[:first], f"… {len(lines) - first - last} lines left out …", *lines[-last:]]
    text = "\n".join(lines)
    if len(text) > MAX_CHARACTERS:
        first = MAX_CHARACTERS // 3
        text = f"{text[:first]}\n… shortened …\n{text[-(MAX_CHARACTERS - first - 20) :]}"
    return text
