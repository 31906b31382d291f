"""LLM inference with continuous batching, in this process.

    import nanovllm

    with nanovllm.Engine("models/demo") as engine:
        print(engine.chat("introduce yourself").text)
        for result in engine.generate(["Hello", "list all prime numbers within 100"], max_tokens=64):
            print(result.prompt, result.text)

An `Engine` is stepped by its caller: by `generate`, by `stream`, or by `step` and `poll` inside a loop of the program. `AsyncEngine` steps on a
thread of its own and serves asyncio. Names, limits and defaults of options are those of nanovllm.h.
"""

from ._abi import (
    AnswerEventKind,
    Coding,
    Device,
    DType,
    EarlyStopping,
    EngineConfig,
    Finish,
    KvCacheDtype,
    LoadMode,
    LogLevel,
    Pooling,
    Quantization,
    Status,
    StructureKind,
    ToolChoice,
)
from .answer import AnswerEvent, AnswerParser
from ._library import abi_version, build_info, version
from .aio import AsyncEngine
from .engine import Engine, Step
from .errors import Error
from .files import FileRange, ModelFile
from .logging import log_to
from .options import DEFAULT_MAX_TOKENS, RequestOptions
from .output import Output
from .prompts import Message, Prompt
from .result import Result, Usage

#: The version of the package, which is that of the library in it.
__version__ = version()

__all__ = [
    "AnswerEvent",
    "AnswerEventKind",
    "AnswerParser",
    "AsyncEngine",
    "Coding",
    "DEFAULT_MAX_TOKENS",
    "DType",
    "Device",
    "EarlyStopping",
    "Engine",
    "EngineConfig",
    "Error",
    "FileRange",
    "Finish",
    "KvCacheDtype",
    "LoadMode",
    "LogLevel",
    "Message",
    "ModelFile",
    "Output",
    "Pooling",
    "Prompt",
    "Quantization",
    "RequestOptions",
    "Result",
    "Status",
    "Step",
    "StructureKind",
    "ToolChoice",
    "Usage",
    "__version__",
    "abi_version",
    "build_info",
    "log_to",
    "version",
]
