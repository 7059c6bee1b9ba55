"""pydantic's complaints about a setting.toml, in words: file, field, value, nearest known key."""

from __future__ import annotations

import difflib
import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from settings.errors import SettingError
from settings.schema import Setting


def explain(error: ValidationError, file: Path, model: type[BaseModel] = Setting) -> SettingError:
    """One SettingError for all complaints, one line each; the remedy is the first one's."""
    lines, remedies = [], []
    for complaint in error.errors(include_url=False):
        line, remedy = _explain_one(complaint, model)
        lines.append(line)
        remedies.append(remedy)
    if len(lines) == 1:
        return SettingError(f"{file}: {lines[0]}", remedies[0])
    both = [f"{line} ({remedy})" for line, remedy in zip(lines, remedies, strict=True)]
    return SettingError(f"{file}: {len(lines)} errors:\n  " + "\n  ".join(both), "Repair them")


def _explain_one(complaint: Any, model: type[BaseModel]) -> tuple[str, str]:
    location = complaint["loc"]
    field = _dotted(location)
    if complaint["type"] == "extra_forbidden":
        known = _keys_at(model, location[:-1])
        near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
        remedy = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(known)}"
        return f"{field} = {_short(complaint['input'])} is not a known key", remedy
    if complaint["type"] == "missing":
        return f"{field} is missing", "Add it"
    message = complaint["msg"][0].lower() + complaint["msg"][1:]
    remedy = "Correct its value"
    expected = complaint.get("ctx", {}).get("expected")
    if complaint["type"] == "literal_error" and expected:
        choices = [c.strip(" '") for c in expected.replace(" or ", ", ").split(",")]
        near = difflib.get_close_matches(str(complaint["input"]), choices, n=1, cutoff=0.5)
        remedy = f"Did you mean {near[0]!r}?" if near else f"Use one of: {', '.join(choices)}"
    return f"{field} = {_short(complaint['input'])}: {message}", remedy


def _dotted(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        if part == "[key]":
            continue
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _keys_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Field names of the table at `location`, found through the schema's annotations."""
    annotation: Any = model
    for part in location:
        annotation = _unwrapped(annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            field = annotation.model_fields.get(str(part))
            if field is None:
                return []
            annotation = field.annotation
        else:
            arguments = [a for a in get_args(annotation) if a is not Ellipsis]
            if not arguments:
                return []
            annotation = arguments[-1]
    annotation = _unwrapped(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return list(annotation.model_fields)
    return []


def _unwrapped(annotation: Any) -> Any:
    """`X` of `X | None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next(a for a in get_args(annotation) if a is not type(None))
    return annotation
