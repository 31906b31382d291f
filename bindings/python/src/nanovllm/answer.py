"""What does an answer consist of? Content, reasoning and tool calls, while it is written."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import POINTER, byref, c_size_t, c_void_p, create_string_buffer, string_at
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _abi
from ._abi import AnswerEventKind, Status
from ._library import library
from .errors import Error, call

#: Tools that the model may call, as in the OpenAI API: a list of dicts, or its JSON.
Tools = Union[str, Sequence[Mapping[str, Any]]]


def tools_text(tools: Tools) -> str:
    """The JSON of tools."""
    if isinstance(tools, str):
        return tools
    if isinstance(tools, (bytes, Mapping)) or not isinstance(tools, Iterable):
        raise TypeError(f"tools is {tools!r}, but must be a list of dicts, or JSON")
    return json.dumps(list(tools), default=dict)


@dataclass(frozen=True)
class AnswerEvent:
    """What became known of an answer."""

    kind: AnswerEventKind
    #: A piece of content, reasoning or arguments; the name of the tool that is called; the id of a call, or why it is none.
    text: str
    #: Which tool call, from 0; 0 for content and reasoning. Calls that broke count.
    call_index: int = 0


class AnswerParser:
    """Reads one answer: `Engine.answer_parser` makes it. A context manager; one thread at a time uses it, others wait."""

    def __init__(self, native: c_void_p):
        self._native: Optional[c_void_p] = native
        self._lock = threading.Lock()

    def feed(self, text: str) -> list[AnswerEvent]:
        """Reads a further piece of the answer, such as `Output.text`, and returns what became known."""
        piece = text.encode()
        return self._read(library.nvllm_answer_parser_feed, piece, len(piece))

    def finish(self) -> list[AnswerEvent]:
        """Says that the answer ends here, and returns the last events. A second call returns none."""
        return self._read(library.nvllm_answer_parser_finish)

    def _read(self, function: Callable[..., int], *arguments: Any) -> list[AnswerEvent]:
        events, count = POINTER(_abi.nvllm_answer_event)(), c_size_t()
        with self._lock:
            call(function, self._live(), *arguments, byref(events), byref(count))
            return [
                AnswerEvent(AnswerEventKind.of(one.kind), string_at(one.text, one.text_len).decode(), one.call_index)
                for one in events[: count.value]
            ]

    @property
    def message(self) -> dict[str, Any]:
        """The message so far, for `Engine.apply_chat_template`: role, content, and where there are some reasoning_content and tool_calls."""
        capacity, needed = 4 << 10, c_size_t()
        with self._lock:
            while True:
                buffer = create_string_buffer(capacity)
                try:
                    call(library.nvllm_answer_parser_message, self._live(), buffer, capacity, byref(needed))
                except Error as error:
                    if error.status != Status.ERR_BUFFER_TOO_SMALL:
                        raise
                    capacity = needed.value
                    continue
                message: dict[str, Any] = json.loads(buffer.raw[: needed.value - 1])
                return message

    def _live(self) -> c_void_p:
        if self._native is None:
            raise ValueError("the parser is closed")
        return self._native

    def close(self) -> None:
        """Destroys the parser. Closing twice does nothing."""
        with self._lock:
            native, self._native = self._native, None
        if native is not None:
            library.nvllm_answer_parser_free(native)

    def __enter__(self) -> AnswerParser:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
