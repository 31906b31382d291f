"""What has the text of a completion to be, and which object does it become?

json_schema=, regex= and grammar= are spellings of structure and structure_kind. A class of pydantic is a JSON schema that also validates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

from ._abi import Finish, StructureKind

if TYPE_CHECKING:
    from .output import Output

#: A JSON schema: as a dict, as JSON text, or as a subclass of pydantic's BaseModel.
JsonSchema = Union[str, Mapping[str, Any], type[Any]]

_KINDS = {"json_schema": StructureKind.JSON_SCHEMA, "regex": StructureKind.REGEX, "grammar": StructureKind.LARK}


def spelled_out(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with structure and structure_kind instead of json_schema, regex and grammar."""
    result = dict(options)
    given = [name for name in (*_KINDS, "structure") if result.get(name) is not None]
    if len(given) > 1:
        raise TypeError(f"{' and '.join(given)} are given, and a completion has one structure")
    for name in _KINDS:
        value = result.pop(name, None)
        if value is not None:
            result["structure"] = _schema(value) if name == "json_schema" else value
            result["structure_kind"] = _KINDS[name]
            if not isinstance(result["structure"], str):
                raise TypeError(f"{name} is {value!r}, but must be a str")
    return result


def _schema(schema: JsonSchema) -> str:
    if isinstance(schema, str):
        return schema
    if isinstance(schema, type):
        if not hasattr(schema, "model_json_schema"):
            raise TypeError(f"json_schema is the class {schema.__name__}, but must be a dict, JSON text or a model of pydantic 2")
        schema = schema.model_json_schema()
    if not isinstance(schema, (Mapping, bool)):
        raise TypeError(f"json_schema is {schema!r}, but must be a dict, JSON text or a model of pydantic 2")
    return json.dumps(schema)


def is_structured(options: Mapping[str, Any]) -> bool:
    """Whether a request has a structure, which may take seconds to compile."""
    return any(options.get(name) is not None for name in ("structure", *_KINDS))


def compiles(options: Mapping[str, Any]) -> bool:
    """Whether adding a request may take seconds: a structure or the schemas of tools are compiled."""
    return is_structured(options) or options.get("tools") is not None


def becomes(options: Mapping[str, Any]) -> Any:
    """What `parsed` gets to know of the request: a class that validates, `dict` for other JSON, or None."""
    schema = options.get("json_schema")
    if isinstance(schema, type):
        return schema
    kind = options.get("structure_kind")
    is_json = schema is not None or (kind.lower() if isinstance(kind, str) else kind) == StructureKind.JSON_SCHEMA
    return dict if is_json else None


def parsed(output: Output, target: Any) -> Any:
    """The object that the text of a whole completion says."""
    if target is None:
        raise ValueError("the request had no json_schema, so that its text is not parsed")
    if output.finish_reason != Finish.STOP:
        how = f"ended by {str(output.finish_reason)!r} after {output.completion_tokens} tokens"
        if output.finish_reason == Finish.LENGTH:
            how += ": raise max_tokens, or limit strings (maxLength) and arrays (maxItems) in the schema"
        elif output.error is not None:
            how += f": {output.error}"
        raise ValueError(f"the completion is not whole JSON, because it {how}")
    return json.loads(output.text) if target is dict else target.model_validate_json(output.text)
