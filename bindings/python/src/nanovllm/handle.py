"""How long does the engine of the C API live?

Until it is closed and no call is inside it: the C API lets no thread pass a pointer that another one may free. So every call enters, and the
last one that leaves a closed engine frees it, and then the buffers that it read. Nothing waits, so that a callback may close its own engine.
"""

from __future__ import annotations

from ctypes import c_void_p
from typing import Any, Optional

from ._library import library
from .files import Files


class Handle:
    """The pointer of an engine, and how many calls are inside it."""

    def __init__(self, files: Optional[Files]) -> None:
        #: NULL until nvllm_engine_new has stored it here.
        self.native = c_void_p()
        self.closed = False
        #: Every call exports it, and it cannot be resized meanwhile. Unlike a number that is counted up and down, this survives an interrupt
        #: between any two lines: Python ends the export of a call that is gone.
        self.inside = bytearray(1)
        self._files = files
        self._unfreed = [self.native]

    def enter(self) -> Call:
        """For a `with` statement around a call, which gets the pointer."""
        return Call(self)

    def close(self) -> None:
        """Refuses further calls, and ends those that wait. Closing twice does nothing."""
        # While this is exported, no other thread frees the engine. It is empty if one has begun to.
        export = memoryview(self.inside)
        self.closed = True
        try:
            if len(export) > 0 and self._unfreed:
                library.nvllm_wake(self.native, None)
        finally:
            export.release()
        self.free_if_unused()

    def free_if_unused(self) -> None:
        """Frees a closed engine, if no call is inside it."""
        try:
            self.inside.clear()
            # Once, whichever thread comes first.
            native = self._unfreed.pop()
        except (BufferError, IndexError):
            return
        try:
            library.nvllm_engine_free(native)
        finally:
            # An interrupt that arrived meanwhile is raised after the call.
            self.release_files()

    def release_files(self) -> None:
        """Lets go of the buffers, where the engine has a copy or does not exist."""
        if self._files is not None:
            self._files.release()

    def __del__(self) -> None:
        self.close()


class Call:
    """A call inside an engine."""

    __slots__ = ("_export", "_handle")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._export = memoryview(handle.inside)

    def __enter__(self) -> c_void_p:
        # Looked at after the export: a thread that closes meanwhile sees that, or this call sees that it is closed.
        if self._handle.closed:
            self.__exit__()
            raise ValueError("the engine is closed")
        return self._handle.native

    def __exit__(self, *_: Any) -> None:
        self._export.release()
        if self._handle.closed:
            self._handle.free_if_unused()
