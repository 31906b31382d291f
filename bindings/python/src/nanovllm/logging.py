"""Messages of the library, for one receiver in the whole process."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional

from ._abi import LogLevel, nvllm_log_fn
from ._library import library

_current: Optional[Any] = None


def log_to(receiver: Optional[Callable[[LogLevel, str], None]], level: LogLevel = LogLevel.INFO) -> None:
    """Sends messages of at most `level` to `receiver(level, message)`; None ends that.

    It is called on threads that are inside a call of the library, when that call is about to return. What it raises is dropped.
    """
    global _current
    if receiver is None:
        library.nvllm_set_log_callback(nvllm_log_fn(), None, 0)
        _current = None
        return

    def receive(message_level: int, message: Any, length: int, _: Any) -> None:
        receiver(LogLevel(message_level), ctypes.string_at(message, length).decode("utf-8", "replace"))

    callback = nvllm_log_fn(receive)
    library.nvllm_set_log_callback(callback, None, int(level))
    _current = callback
