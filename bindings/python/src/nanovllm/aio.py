"""An engine for asyncio: one thread steps it, and any number of tasks read streams."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Optional

from .engine import Engine, Prompt
from .options import RequestOptions
from .output import Output

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Seconds of computing between two looks at what was asked meanwhile.
_BUDGET = 0.05
#: Requests of one kind that are added at once: a structure may take seconds to compile, a long prompt a moment to be tokenized.
_ADDING = 16


class _Reader:
    """Who reads the outputs of a request, and how far the request is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, completions: int) -> None:
        self._loop = loop
        self.outputs: asyncio.Queue = asyncio.Queue()
        #: Completions whose last output has not come.
        self.unfinished = completions
        #: None while it is added.
        self.request: Optional[int] = None
        self.has_left = False

    def put(self, what: Any) -> None:
        """Gives it an output or the error that ends it, from any thread."""
        if self.has_left:
            return
        try:
            self._loop.call_soon_threadsafe(self.outputs.put_nowait, what)
        except RuntimeError:
            # Its loop has ended.
            self.has_left = True


class AsyncEngine:
    """Serves the tasks of event loops. Requests may come from several loops and threads."""

    def __init__(self, engine: Engine) -> None:
        """Steps `engine` on a thread of its own, until `close`. Nothing else may step it meanwhile."""
        self.engine = engine
        #: Guards what follows. Never held while a request is added or the engine steps.
        self._lock = threading.Lock()
        #: By request, until the last output has come, also where the reader has left.
        self._readers: dict[int, _Reader] = {}
        #: Readers whose requests are being added, and outputs that came before it was known whose they are.
        self._adding: set[_Reader] = set()
        self._early: dict[int, list[Output]] = {}
        self._closing = False
        self._failed: Optional[BaseException] = None
        #: Add requests, off the event loops. Those with structures have threads of their own: they delay no others.
        self._plain = ThreadPoolExecutor(_ADDING, "nanovllm-add")
        self._structured = ThreadPoolExecutor(_ADDING, "nanovllm-add-structure")
        self._thread = threading.Thread(target=self._run, name="nanovllm", daemon=True)
        self._thread.start()

    async def stream(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> AsyncIterator[Output]:
        """Yields the outputs of a prompt. Leaving the loop early, and cancelling its task, cancel the request.

        Raises `Error` when the engine fails, and ValueError when it is closed.
        """
        left = options.get("n", 1) or 1
        reader = _Reader(asyncio.get_running_loop(), left)
        adders = self._structured if options.get("structure") else self._plain
        with self._lock:
            if self._failed is not None:
                raise self._failed
            if self._closing:
                raise ValueError("the engine is closed")
            adders.submit(self._add, reader, prompt, options)
            self._adding.add(reader)
        try:
            while left > 0:
                output = await reader.outputs.get()
                if isinstance(output, BaseException):
                    raise output
                left -= output.finished
                yield output
        finally:
            self._leave(reader)

    def _add(self, reader: _Reader, prompt: Prompt, options: RequestOptions) -> None:
        """Adds the request of a reader, who may have left before and may leave meanwhile."""
        request = error = None
        if not reader.has_left:
            try:
                request = self.engine.add_request(prompt, **options)
            except BaseException as raised:
                error = raised
        with self._lock:
            self._adding.discard(reader)
            if request is not None:
                reader.request = request
                self._readers[request] = reader
                for output in self._early.pop(request, ()):
                    self._deal(output)
            if not self._adding:
                self._early.clear()
            is_orphan = request in self._readers and (reader.has_left or self._failed is not None or self._closing)
        if error is not None:
            reader.put(error)
        if is_orphan:
            self.engine._cancel_quietly(request)

    def _leave(self, reader: _Reader) -> None:
        with self._lock:
            reader.has_left = True
            is_unfinished = reader.request in self._readers
        # A request that is being added is cancelled by who adds it.
        if is_unfinished:
            self.engine._cancel_quietly(reader.request)

    async def generate(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> list[Output]:
        """The completions of a prompt, each whole."""
        whole: dict[int, Output] = {}
        async for output in self.stream(prompt, **options):
            before = whole.get(output.index)
            if before is not None:
                output.text = before.text + output.text
                output.token_ids = before.token_ids + output.token_ids
                output.logprobs = before.logprobs + output.logprobs
                output.top_logprobs = before.top_logprobs + output.top_logprobs
                output.prompt_logprobs = before.prompt_logprobs or output.prompt_logprobs
                output.prompt_top_logprobs = before.prompt_top_logprobs or output.prompt_top_logprobs
            whole[output.index] = output
        return [whole[index] for index in sorted(whole)]

    def close(self) -> None:
        """Ends all streams and the thread, and closes the engine."""
        with self._lock:
            self._closing = True
        self.engine._wake_quietly()
        self._thread.join()
        self._end(ValueError("the engine is closed"))
        for adders in (self._plain, self._structured):
            # Whoever adds finds the engine closed, or cancels what it has added.
            adders.shutdown(wait=False)
        self.engine.close()

    async def __aenter__(self) -> AsyncEngine:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def _run(self) -> None:
        try:
            while not self._closing:
                if not self.engine.wait():
                    continue
                self.engine.step(_BUDGET)
                while (output := self.engine.poll()) is not None:
                    with self._lock:
                        self._deal(output)
        except BaseException as error:
            # Also ValueError, of an engine that was closed underneath: no task may wait for outputs that never come.
            with self._lock:
                self._failed = error
            self._end(error)

    def _deal(self, output: Output) -> None:
        """Gives an output to its reader. The lock is held."""
        reader = self._readers.get(output.request_id)
        if reader is not None:
            reader.put(output)
            if output.finished:
                reader.unfinished -= 1
                if reader.unfinished == 0:
                    del self._readers[output.request_id]
        elif self._adding:
            self._early.setdefault(output.request_id, []).append(output)

    def _end(self, error: BaseException) -> None:
        with self._lock:
            for reader in [*self._readers.values(), *self._adding]:
                reader.put(error)
