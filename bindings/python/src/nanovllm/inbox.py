"""Which reader does an output belong to? A stream, `Engine.poll`, or nobody, where its stream was left early."""

from __future__ import annotations

import threading
from collections import deque
from typing import Optional

from .output import Output


class Inbox:
    """Outputs that were taken from the library, and whom they are for."""

    def __init__(self) -> None:
        #: Held from adding the request of a stream to its `open`, and while an output is taken and dealt: an output of a stream finds it.
        self.lock = threading.RLock()
        self._streams: dict[int, deque[Output]] = {}
        #: Completions that have not ended, of streams that were left.
        self._left: dict[int, int] = {}
        self._unclaimed: deque[Output] = deque()

    def open(self, request: int) -> deque[Output]:
        """Where a stream finds its outputs."""
        own = self._streams[request] = deque()
        return own

    def leave(self, request: int, unfinished: int) -> bool:
        """Ends a stream that has not received the end of `unfinished` completions. Returns whether any is still to come."""
        with self.lock:
            unfinished -= sum(output.finished for output in self._streams.pop(request))
            if unfinished > 0:
                self._left[request] = unfinished
            return unfinished > 0

    def deal(self, output: Output) -> None:
        """Gives an output to its stream, or keeps it for `take`."""
        request = output.request_id
        if request in self._streams:
            self._streams[request].append(output)
        elif request not in self._left:
            self._unclaimed.append(output)
        elif output.finished:
            self._left[request] -= 1
            if self._left[request] == 0:
                del self._left[request]

    def take(self) -> Optional[Output]:
        """The oldest output of no stream."""
        try:
            return self._unclaimed.popleft()
        except IndexError:
            return None

    @property
    def has_left(self) -> bool:
        """Whether outputs of streams that were left are still to come."""
        return bool(self._left)

    @property
    def is_empty(self) -> bool:
        """Whether `take` has nothing."""
        return not self._unclaimed
