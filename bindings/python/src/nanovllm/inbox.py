"""Which reader does an output belong to? A stream, `Engine.poll`, or nobody, where its stream was left early."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Optional

from .output import Output


class Inbox:
    """Outputs that were taken from the library, and whom they are for."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called when `take` has outputs that were polled before it was known whom they are for."""
        self._wake = wake
        #: Held while an output is taken and dealt, and never while a request is added, which may take seconds.
        self.lock = threading.RLock()
        self._streams: dict[int, deque[Output]] = {}
        #: Completions that have not ended, of streams that were left.
        self._left: dict[int, int] = {}
        self._unclaimed: deque[Output] = deque()
        #: Calls that add the request of a stream and have not returned, and whether this thread is inside of one.
        self._adding = 0
        self._thread = threading.local()
        #: While there are such calls: outputs of requests that the library knows and this does not yet, by request.
        self._early: dict[int, list[Output]] = {}
        #: Requests of no stream: all up to this id, which were added before these calls began, and those that were added since.
        self._unstreamed_to = 0
        self._unstreamed: set[int] = set()
        #: The greatest id of which is known whom it is for.
        self._last = 0

    def open(self, add: Callable[[], int]) -> tuple[int, deque[Output]]:
        """Adds the request of a stream. Returns its id, and where the stream finds its outputs."""
        with self.lock:
            if self._adding == 0:
                self._unstreamed_to = self._last
            self._adding += 1
        request = None
        self._thread.adds_for_stream = True
        try:
            request = add()
        finally:
            self._thread.adds_for_stream = False
            with self.lock:
                own: deque[Output] = deque()
                if request is not None:
                    self._last = max(self._last, request)
                    own.extend(self._early.pop(request, ()))
                    self._streams[request] = own
                self._adding -= 1
                has_more = self._adding == 0 and bool(self._early)
                if self._adding == 0:
                    for outputs in self._early.values():
                        self._unclaimed.extend(outputs)
                    self._early.clear()
                    self._unstreamed.clear()
            if has_more:
                self._wake()
        return request, own

    def note(self, request: int) -> None:
        """Says that a request was added whose outputs `take` is to give, unless this thread adds it for a stream."""
        if getattr(self._thread, "adds_for_stream", False):
            return
        with self.lock:
            self._last = max(self._last, request)
            early: list[Output] = []
            if self._adding > 0:
                self._unstreamed.add(request)
                early = self._early.pop(request, [])
                self._unclaimed.extend(early)
        if early:
            self._wake()

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
            if self._adding == 0 or request <= self._unstreamed_to or request in self._unstreamed:
                self._unclaimed.append(output)
            else:
                self._early.setdefault(request, []).append(output)
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
    def has_unclaimed(self) -> bool:
        """Whether `take` has an output."""
        return bool(self._unclaimed)

    @property
    def has_left(self) -> bool:
        """Whether outputs of streams that were left are still to come."""
        return bool(self._left)

    @property
    def is_empty(self) -> bool:
        """Whether `take` has nothing, and no output waits for its reader to be known."""
        return not self._unclaimed and not self._early
