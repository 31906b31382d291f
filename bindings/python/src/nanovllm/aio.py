"""An engine for asyncio: one thread steps it, and any number of tasks read streams."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from . import batch
from ._abi import EngineConfig, Pooling, Status
from .engine import Engine
from .errors import Error
from .files import ModelFile
from .options import Path, RequestOptions, completions
from .output import Output
from .progress import Meter, Progress
from .prompts import Message, Prompt, several, shown
from .result import Result, failed, joined
from .structure import compiles
from .vectors import Vectors, pooled, vectors

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

#: Seconds of computing between two looks at what was asked meanwhile.
_BUDGET = 0.05
#: Requests of one kind that are added at once: a structure may take seconds to compile, a long prompt a moment to be tokenized.
_ADDING = 16
#: Seconds after which a prompt of `generate` is added again where the queue was full.
_QUEUE_SECONDS = 0.01


class _Reader:
    """Who reads the outputs of a request, and how far the request is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, completions: int, prompts: Optional[list[Prompt]]) -> None:
        self._loop = loop
        self.outputs: asyncio.Queue[Any] = asyncio.Queue()
        #: Gets the prompt that the request is added with.
        self.prompts = prompts
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

    def __init__(
        self,
        engine: Union[Engine, Path] = None,
        *,
        files: Optional[Mapping[str, ModelFile]] = None,
        progress: Union[bool, Callable[[float], Any], None] = None,
        **config: Unpack[EngineConfig],
    ) -> None:
        """Opens a model as `Engine` does, or takes an open one, and steps it on a thread of its own until `close`. Nothing else may step it.

        Opening reads the model, and its caller waits: inside a running event loop, `await AsyncEngine.open(...)` does that on another thread.
        """
        if isinstance(engine, Engine):
            if files is not None or progress is not None or config:
                names = ", ".join([*(["files"] if files is not None else []), *(["progress"] if progress is not None else []), *config])
                raise TypeError(f"{names}: options of opening a model, and the engine that was given is open")
        elif engine is None and files is None or not isinstance(engine, (str, bytes, os.PathLike, type(None))):
            raise TypeError(f"engine is {shown(engine)}, but must be an Engine, or the path of a model folder or of a GGUF file")
        else:
            engine = Engine(engine, files=files, progress=progress, **config)
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

    @classmethod
    async def open(
        cls,
        model_path: Path = None,
        *,
        files: Optional[Mapping[str, ModelFile]] = None,
        progress: Union[bool, Callable[[float], Any], None] = None,
        **config: Unpack[EngineConfig],
    ) -> Self:
        """Opens a model on another thread, so that the event loop goes on."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: cls(model_path, files=files, progress=progress, **config))

    def stream(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> AsyncGenerator[Output, None]:
        """Yields the outputs of a prompt. Leaving the loop early, and cancelling its task, cancel the request.

        Options are as in `Engine.generate`. Raises `Error` when the engine fails, and ValueError when it is closed.
        """
        return self._stream(lambda: prompt, options)

    def chat_stream(  # type: ignore[misc]
        self,
        messages: Union[str, Sequence[Message]],
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        template: Optional[Mapping[str, Any]] = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncGenerator[Output, None]:
        """Yields the answer of `chat` as it comes, as `stream` does."""
        options = self.engine._with_tools(tools, options)
        return self._stream(lambda: self.engine._chat_prompt(messages, tools, template, options), options)

    async def _stream(
        self, prompt: Callable[[], Prompt], options: Mapping[str, Any], prompts: Optional[list[Prompt]] = None
    ) -> AsyncGenerator[Output, None]:
        """Yields the outputs of a prompt, which is made where it is added, off the event loop, and put into `prompts`."""
        reader = _Reader(asyncio.get_running_loop(), completions(options), prompts)
        left = reader.unfinished
        adders = self._structured if compiles(options) else self._plain
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

    def _add(self, reader: _Reader, prompt: Callable[[], Prompt], options: Mapping[str, Any]) -> None:
        """Adds the request of a reader, who may have left before and may leave meanwhile."""
        request: Optional[int] = None
        error: Optional[BaseException] = None
        if not reader.has_left:
            try:
                made = prompt()
                if reader.prompts is not None:
                    reader.prompts.append(made)
                request = self.engine.add_request(made, **options)
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
        if is_orphan and request is not None:
            self.engine._cancel_quietly(request)

    def _leave(self, reader: _Reader) -> None:
        with self._lock:
            reader.has_left = True
            request = reader.request if reader.request in self._readers else None
        # A request that is being added is cancelled by who adds it.
        if request is not None:
            self.engine._cancel_quietly(request)

    async def generate(
        self,
        prompts: Union[Prompt, Sequence[Prompt]],
        *,
        progress: Progress = None,
        each: Optional[Sequence[Union[RequestOptions, Mapping[str, Any]]]] = None,
        **options: Unpack[RequestOptions],
    ) -> list[Result]:
        """Generates for all prompts, and returns a result per prompt, as `Engine.generate` does.

        The requests of the call wait for room in the queue where it is full.
        """
        meter = Meter(progress)
        given, is_one = several(prompts, "prompts")
        results = await self._generate(given, meter, batch.options_of(each, options, len(given)))
        batch.raise_if_alone(results, is_one)
        return results

    async def _generate(self, prompts: Sequence[Prompt], meter: Meter, given: batch.Each) -> list[Result]:
        total = sum(completions(batch.of_prompt(given, at)) for at in range(len(prompts)))
        done = tokens = 0

        async def whole(place: int) -> list[Output]:
            nonlocal done, tokens
            outputs: list[Output] = []
            options = batch.of_prompt(given, place)
            while True:
                try:
                    async for output in self._stream(lambda: prompts[place], options):
                        outputs.append(output)
                        done += output.finished
                        tokens += len(output.token_ids)
                        meter.report(done, total, tokens)
                except Error as error:
                    if self._failed is not None:
                        raise
                    if error.status == Status.ERR_QUEUE_FULL:
                        await asyncio.sleep(_QUEUE_SECONDS)
                        continue
                    return [failed(error)]
                return joined(outputs)

        tasks = [asyncio.ensure_future(whole(place)) for place in range(len(prompts))]
        try:
            groups = await asyncio.gather(*tasks)
        finally:
            meter.close()
            for task in tasks:
                task.cancel()
        batch.raise_if_all_refused(groups, given)
        return batch.grouped(prompts, groups, given)

    async def chat(  # type: ignore[misc]
        self,
        messages: Union[str, Sequence[Message]],
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        template: Optional[Mapping[str, Any]] = None,
        **options: Unpack[RequestOptions],
    ) -> Result:
        """Answers a conversation, as `Engine.chat` does."""
        prompts: list[Prompt] = []
        options = self.engine._with_tools(tools, options)
        prompting = self._stream(lambda: self.engine._chat_prompt(messages, tools, template, options), options, prompts)
        outputs = [output async for output in prompting]
        return batch.grouped(prompts, [joined(outputs)], [options])[0]

    async def embed(
        self,
        texts: Union[Prompt, Sequence[Prompt]],
        *,
        normalize: bool = True,
        pooling: Union[Pooling, str] = Pooling.LAST,
        progress: Progress = None,
    ) -> Vectors:
        """The embeddings of texts, as `Engine.embed` gives them."""
        meter = Meter(progress)
        given, is_one = several(texts, "texts")
        results = await self._generate(given, meter, [pooled(pooling)])
        return vectors(results, normalize, is_one, int(self.engine.model_info()["hidden_size"]))

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

    async def __aenter__(self) -> Self:
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
