"""LLM inference with continuous batching, in this process.

    import nanovllm

    with nanovllm.Engine("models/demo") as engine:
        for output in engine.generate(["Hello", "list all prime numbers within 100"], max_tokens=64):
            print(output.text)

An `Engine` is stepped by its caller: by `generate`, by `stream`, or by `step` and `poll` inside a loop of the program. `AsyncEngine` steps on a
thread of its own and serves asyncio. Names, limits and defaults of options are those of nanovllm.h.
"""

from ._abi import Device, DType, EarlyStopping, EngineConfig, Finish, LoadMode, LogLevel, Pooling, Quantization, Status, StructureKind
from ._library import abi_version, build_info, version
from .aio import AsyncEngine
from .engine import Engine, Step
from .errors import Error
from .files import FileRange, ModelFile
from .logging import log_to
from .options import RequestOptions
from .output import Output

__all__ = [
    "AsyncEngine",
    "DType",
    "Device",
    "EarlyStopping",
    "Engine",
    "EngineConfig",
    "Error",
    "FileRange",
    "Finish",
    "LoadMode",
    "LogLevel",
    "ModelFile",
    "Output",
    "Pooling",
    "Quantization",
    "RequestOptions",
    "Status",
    "Step",
    "StructureKind",
    "abi_version",
    "build_info",
    "log_to",
    "version",
]
