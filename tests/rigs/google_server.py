"""A server of Google's protocol (gcp-storage-emulator), run by `stores.google_server` with its port as argument."""

from __future__ import annotations

import sys

from gcp_storage_emulator.server import create_server
from gcp_storage_emulator.storage import Storage

_list = Storage.get_file_list


def _list_with_folders(self, bucket, prefix=None, delimiter=None, glob=None, **options):
    """List a folder's files and folders; objects that mark folders are among both, as clients ask of Google's.

    They do by ``includeTrailingDelimiter``, which the emulator does not know.
    """
    files, folders = _list(self, bucket, prefix, delimiter, glob, **options)
    if delimiter:
        everything, _ = _list(self, bucket, prefix, **options)
        files += [file for file in everything if file["name"] in folders]
    return files, folders


def main() -> None:
    """Serve from memory, until it is ended."""
    Storage.get_file_list = _list_with_folders
    create_server("127.0.0.1", int(sys.argv[1]), in_memory=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()


main()
