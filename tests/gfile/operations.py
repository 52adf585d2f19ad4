"""What is done with files through TensorFlow, to be answered as TensorFlow's own file system does."""

from tests.support.lazy import Lazy

tf = Lazy("tensorflow")
gfile = Lazy("tensorflow.io.gfile")


def write(path, text, mode="w"):
    with gfile.GFile(path, mode) as file:
        file.write(text)


def read(path, mode="r"):
    return gfile.GFile(path, mode).read()


def read_in_pieces(path):
    with gfile.GFile(path, "rb") as file:
        pieces = [file.read(3), file.tell(), file.read(0), file.seek(1) or file.read(2), file.size()]
        return [*pieces, file.read(), file.read()]


def appended(path):
    with gfile.GFile(path, "a") as file:
        file.write("more")
        length = file.tell()
    return length, read(path)


# What is done in a directory ``d`` with a file ``f`` of "hello" and a directory ``e`` with a file ``g`` of "".
OPERATIONS = {
    "read": lambda d: read(f"{d}/f"),
    "read an empty file": lambda d: read(f"{d}/e/g"),
    "read in pieces": lambda d: read_in_pieces(f"{d}/f"),
    "read what is not there": lambda d: read(f"{d}/none"),
    "read a directory": lambda d: read(f"{d}/e"),
    "write": lambda d: (write(f"{d}/new", "text"), read(f"{d}/new")),
    "write nothing": lambda d: (write(f"{d}/new", ""), gfile.stat(f"{d}/new").length),
    "write without closing": lambda d: (gfile.GFile(f"{d}/new", "w").write("text"), read(f"{d}/new")),
    "write again": lambda d: (write(f"{d}/f", "a longer text than before"), write(f"{d}/f", "short"), read(f"{d}/f")),
    "write to a directory": lambda d: write(f"{d}/e", "text"),
    "append": lambda d: appended(f"{d}/f"),
    "append to what is not there": lambda d: appended(f"{d}/new"),
    "exists": lambda d: [gfile.exists(f"{d}/{name}") for name in ("f", "e", "e/g", "none", "none/g", "e/", "")],
    "isdir": lambda d: [gfile.isdir(f"{d}/{name}") for name in ("f", "e", "none", "e/", "")],
    "size": lambda d: [gfile.stat(f"{d}/{name}").length for name in ("f", "e/g")],
    "kind": lambda d: [gfile.stat(f"{d}/{name}").is_directory for name in ("f", "e")],
    "stat what is not there": lambda d: gfile.stat(f"{d}/none"),
    "list": lambda d: (sorted(gfile.listdir(d)), gfile.listdir(f"{d}/e"), gfile.listdir(f"{d}/e/")),
    "list a file": lambda d: gfile.listdir(f"{d}/f"),
    "list what is not there": lambda d: gfile.listdir(f"{d}/none"),
    "walk": lambda d: [(top[len(d) :], sorted(below), sorted(files)) for top, below, files in gfile.walk(d)],
    "make a directory": lambda d: (gfile.mkdir(f"{d}/new"), gfile.isdir(f"{d}/new"), gfile.listdir(f"{d}/new")),
    "make a directory that is there": lambda d: gfile.mkdir(f"{d}/e"),
    "make a directory where a file is": lambda d: gfile.mkdir(f"{d}/f"),
    "make a directory without its parent": lambda d: gfile.mkdir(f"{d}/none/new"),
    "make directories": lambda d: (gfile.makedirs(f"{d}/a/b/c"), gfile.isdir(f"{d}/a/b/c")),
    "make directories that are there": lambda d: gfile.makedirs(f"{d}/e"),
    "make directories where a file is": lambda d: gfile.makedirs(f"{d}/f"),
    "list a directory that was made": lambda d: (gfile.mkdir(f"{d}/new"), sorted(gfile.listdir(d))),
    "remove": lambda d: (gfile.remove(f"{d}/f"), gfile.exists(f"{d}/f")),
    "remove what is not there": lambda d: gfile.remove(f"{d}/none"),
    "remove a directory as a file": lambda d: gfile.remove(f"{d}/e"),
    "remove a tree": lambda d: (gfile.rmtree(f"{d}/e"), gfile.exists(f"{d}/e"), gfile.exists(f"{d}/e/g")),
    "remove a tree that was only made": lambda d: (gfile.makedirs(f"{d}/a/b"), gfile.rmtree(f"{d}/a")),
    "remove a tree that is not there": lambda d: gfile.rmtree(f"{d}/none"),
    "rename": lambda d: (gfile.rename(f"{d}/f", f"{d}/new"), gfile.exists(f"{d}/f"), read(f"{d}/new")),
    "rename what is not there": lambda d: gfile.rename(f"{d}/none", f"{d}/new"),
    "rename to what is there": lambda d: gfile.rename(f"{d}/f", f"{d}/e/g"),
    "rename over a file": lambda d: (gfile.rename(f"{d}/f", f"{d}/e/g", overwrite=True), read(f"{d}/e/g")),
    "rename a file over a directory": lambda d: gfile.rename(f"{d}/f", f"{d}/e", overwrite=True),
    "rename a directory": lambda d: (gfile.rename(f"{d}/e", f"{d}/new"), read(f"{d}/new/g"), gfile.exists(f"{d}/e")),
    "rename a directory over a file": lambda d: gfile.rename(f"{d}/e", f"{d}/f", overwrite=True),
    "copy": lambda d: (gfile.copy(f"{d}/f", f"{d}/new"), read(f"{d}/new"), read(f"{d}/f")),
    "copy to what is there": lambda d: gfile.copy(f"{d}/f", f"{d}/e/g"),
    "copy over": lambda d: (gfile.copy(f"{d}/f", f"{d}/e/g", overwrite=True), read(f"{d}/e/g")),
    "glob": lambda d: [sorted(one[len(d) :] for one in gfile.glob(f"{d}/{p}")) for p in PATTERNS],
    "list files": lambda d: [one.numpy().decode()[len(d) :] for one in tf.data.Dataset.list_files(f"{d}/e/*")],
    "list files that are not there": lambda d: list(tf.data.Dataset.list_files(f"{d}/none/*")),
    "lines": lambda d: (write(f"{d}/f", "a\nb\n\nc"), gfile.GFile(f"{d}/f").readlines()),
    "a name with a colon": lambda d: (write(f"{d}/a:b", "text"), read(f"{d}/a:b")),
    "odd names": lambda d: odd_names(d),  # noqa: PLW0108 - it comes later
}
PATTERNS = ["*", "f", "none", "*/g", "e/*", "?", "[a-e]", "[!f]", "*/*", "none/*", "*.txt", "f*/g"]


def odd_names(folder):
    names = ["a b", "ä-ß-漢", "100%", "x=1,y=2", "a#b", "a+b&c", ".hidden", "a'b", "~", "-"]
    gfile.makedirs(f"{folder}/odd")
    for name in names:
        write(f"{folder}/odd/{name}", name)
    return sorted(gfile.listdir(f"{folder}/odd")), [read(f"{folder}/odd/{name}") for name in names]


def outcome(operation, folder):
    """Return what an operation returns, or the class of TensorFlow's error and its code."""
    gfile.makedirs(f"{folder}/e")
    write(f"{folder}/f", "hello")
    write(f"{folder}/e/g", "")
    try:
        return operation(folder)
    except tf.errors.OpError as error:
        return type(error).__name__, error.error_code
    except Exception as error:  # noqa: BLE001 - what a user would see
        return type(error).__name__


# Where the answer of TensorFlow's own is that of a disk, whose directories are files, too.
_OF_DISKS = {"read a directory": ("FailedPreconditionError", 9), "write to a directory": ("FailedPreconditionError", 9)}


def expected_outcome(name, folder):
    """Return what an operation comes to on TensorFlow's own file system, in a local folder."""
    return _OF_DISKS.get(name) or outcome(OPERATIONS[name], str(folder))
