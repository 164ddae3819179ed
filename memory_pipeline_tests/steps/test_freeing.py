"""What libraries have freed goes back to the system."""

from __future__ import annotations

import ctypes
import platform

import pytest

from benchmarks.measure import memory
from memory_pipeline.steps.freeing import give_back

#: Below what the C library asks the system for piece by piece.
_PIECE, _PIECES = 64_000, 1_000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps what is freed")
def test_memory_that_was_freed_below_a_piece_in_use_goes_back_to_the_system() -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    pieces = [library.malloc(_PIECE) for _ in range(_PIECES)]
    for piece in pieces:
        ctypes.memset(piece, 1, _PIECE)
    # The last piece stays in use, and keeps what lies below it from going back by itself.
    for piece in pieces[:-1]:
        library.free(piece)
    held, _ = memory()

    give_back()

    left, _ = memory()
    library.free(pieces[-1])
    assert held - left > _PIECE * _PIECES / 1e6 / 2
