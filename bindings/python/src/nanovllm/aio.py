"""An engine for asyncio: one thread steps it, and any number of tasks read streams."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Optional

from .engine import Engine, Prompt
from .options import RequestOptions
from .output import Output

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Seconds of computing between two looks at what was asked meanwhile.
_BUDGET = 0.05


class AsyncEngine:
    """Serves the tasks of event loops. Requests may come from several loops and threads."""

    def __init__(self, engine: Engine) -> None:
        """Steps `engine` on a thread of its own, until `close`. Nothing else may step it meanwhile."""
        self.engine = engine
        self._streams: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Queue]] = {}
        #: Guards `_streams` and `_closing`; notified when there may be work.
        self._work = threading.Condition()
        self._closing = False
        self._failed: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, name="nanovllm", daemon=True)
        self._thread.start()

    async def stream(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> AsyncIterator[Output]:
        """Yields the outputs of a prompt. Leaving the loop early, and cancelling its task, cancel the request.

        Raises `Error` when the engine fails, and ValueError when it is closed.
        """
        outputs: asyncio.Queue = asyncio.Queue()
        with self._work:
            if self._failed is not None:
                raise self._failed
            if self._closing:
                raise ValueError("the engine is closed")
            # The thread deals outputs under the same lock, so that it finds the queue.
            request = self.engine.add_request(prompt, **options)
            self._streams[request] = asyncio.get_running_loop(), outputs
            self._work.notify()
        left = options.get("n", 1) or 1
        try:
            while left > 0:
                output = await outputs.get()
                if isinstance(output, BaseException):
                    left = 0
                    raise output
                left -= output.finished
                yield output
        finally:
            with self._work:
                self._streams.pop(request, None)
                if left > 0:
                    self.engine._cancel_quietly(request)

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
        with self._work:
            self._closing = True
            self._work.notify()
        self._thread.join()
        self._end(ValueError("the engine is closed"))
        self.engine.close()

    async def __aenter__(self) -> AsyncEngine:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def _run(self) -> None:
        try:
            while True:
                with self._work:
                    while not self._closing and self.engine.is_finished():
                        self._work.wait()
                    if self._closing:
                        return
                self.engine.step(_BUDGET)
                with self._work:
                    while (output := self.engine.poll()) is not None:
                        self._deal(output.request_id, output)
        except BaseException as error:
            # Also ValueError, of an engine that was closed underneath: no task may wait for outputs that never come.
            with self._work:
                self._failed = error
            self._end(error)

    def _deal(self, request: int, what: Any) -> None:
        found = self._streams.get(request)
        if found is not None:
            loop, outputs = found
            try:
                loop.call_soon_threadsafe(outputs.put_nowait, what)
            except RuntimeError:
                # The loop of its reader has ended.
                del self._streams[request]

    def _end(self, error: BaseException) -> None:
        with self._work:
            for request in list(self._streams):
                self._deal(request, error)
