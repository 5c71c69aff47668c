"""Checksums (CRC-32) by which a file that is no longer what was written is known, however large it is."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import BinaryIO

PIECE = 4 * 2**20
"""Bytes that are read at a time."""


class ChecksummedFile:
    """A file that is written to, with the checksum of all that was."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.checksum = 0

    def write(self, data: bytes | memoryview) -> None:
        """Write all of ``data``."""
        self.checksum = zlib.crc32(data, self.checksum)
        self.file.write(data)


def checksum_of(path: Path) -> int:
    """Return the checksum of a file's content. Raises `OSError`."""
    checksum, piece = 0, memoryview(bytearray(PIECE))
    with open(path, "rb") as file:
        while n_bytes := file.readinto(piece):
            checksum = zlib.crc32(piece[:n_bytes], checksum)
    return checksum
