"""What do embeddings look like in Python? An array of numpy where that is installed, else lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

from ._abi import Pooling
from .errors import Error
from .options import member
from .result import Result

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    #: float32. Lists of numbers where numpy is not installed.
    Vectors = numpy.typing.NDArray[numpy.float32]
else:
    Vectors = Any


def pooled(pooling: Union[Pooling, str, int]) -> dict[str, Any]:
    """The options of a request for an embedding."""
    number = member(Pooling, pooling, "pooling")
    if number == Pooling.NONE:
        raise ValueError('pooling is "none", but an embedding is the state of the "last" token or the "mean" of all')
    return {"pooling": number}


def vectors(results: Sequence[Result], normalize: bool, is_one: bool, width: int) -> Vectors:
    """The embeddings of results: [n, width], or [width] of one text. Normalized ones have the Euclidean length 1."""
    rows = []
    for place, result in enumerate(results):
        if result.error is not None:
            where = "texts" if is_one else f"texts[{place}]"
            raise Error(result.error.status, f"{where}: {result.error}", result.error.native_code)
        rows.append(_normalized(result.embedding) if normalize else result.embedding)
    made: Any = rows
    try:
        import numpy
    except ImportError:
        pass
    else:
        made = numpy.asarray(rows, dtype=numpy.float32).reshape(len(rows), len(rows[0]) if rows else width)
    shaped: Vectors = made[0] if is_one else made
    return shaped


def _normalized(vector: list[float]) -> list[float]:
    # As the Go server does it.
    length = math.sqrt(math.fsum(value * value for value in vector))
    return vector if length == 0 else [value / length for value in vector]
