"""From a function's signature to a schema for the model, and from a model's arguments back to a call."""

import asyncio
import contextlib
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, SimpleNamespace
from typing import Annotated, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from signoff.domain.jsonable import jsonable
from signoff.domain.jsonvalue import Json, JsonObject, as_object, encode
from signoff.domain.validation import explain
from signoff.errors import ConfigurationError, NotJson, TooLarge
from signoff.tools.arguments import InvalidArguments, parse_arguments
from signoff.tools.context import ToolContext

_DEFAULT_BYTES_MAX = 64 * 1024
_CONFIG = ConfigDict(extra="forbid", validate_default=False)
_SECTION = re.compile(r"^(args|arguments|parameters|returns|yields|raises|examples?|notes?):\s*$", re.IGNORECASE)
_DOCUMENTED = re.compile(r"^(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


class _Schema(GenerateJsonSchema):
    """JSON schema for models: no titles that repeat the names, no warnings about defaults JSON cannot say."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002  # pydantic's signature
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a tool's function wants: `names` are the arguments the model gives, `context` the injected parameter."""

    model: type[BaseModel]
    names: tuple[str, ...]
    context: str | None
    schema: JsonObject

    def validate(self, arguments: JsonObject) -> dict[str, object]:
        """The Python values of `arguments`, made anew on each call; defaults are filled in.

        Raises:
            InvalidArguments: which field is wrong, and why.
        """
        try:
            # As JSON text, so that dates, enums and the like are read in JSON's way even in strict models.
            validated = self.model.model_validate_json(encode(arguments))
        except ValidationError as error:
            raise InvalidArguments(explain(error)) from error
        except Exception as error:
            # A user's validator broke. Doubt means no; what broke is no business of the model's.
            raise InvalidArguments("the arguments could not be checked") from error
        return {name: getattr(validated, _field(index)) for index, name in enumerate(self.names)}

    def complete(self, arguments: JsonObject) -> JsonObject:
        """Valid arguments with the defaults filled in; a default that JSON cannot say is left out."""
        defaults: JsonObject = {}
        for index, name in enumerate(self.names):
            info = self.model.model_fields[_field(index)]
            if name in arguments or info.is_required():
                continue
            try:
                value = jsonable(info.get_default(call_default_factory=True), what=name, bytes_max=_DEFAULT_BYTES_MAX)
            except (NotJson, TooLarge):
                continue
            defaults[name] = value
        return {**arguments, **defaults}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Arguments that fit. `arguments` are what the card shows and digests cover."""

    arguments: JsonObject
    signature: Signature

    def complete(self) -> JsonObject:
        """The arguments with the defaults filled in: what will run, to be shown before it does."""
        return self.signature.complete(self.arguments)

    def values(self) -> dict[str, object]:
        """Fresh Python values: what a hook does to its own cannot change what another function gets."""
        return self.signature.validate(self.arguments)


def bind(signature: Signature, arguments: Json) -> Bound:
    """Check `arguments` (JSON text, or parsed) against `signature`. Raises `InvalidArguments`."""
    parsed = parse_arguments(arguments)
    signature.validate(parsed)
    return Bound(arguments=parsed, signature=signature)


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """A user's function with the arguments it wants: all of the tool's, or (a hook) those it names."""

    function: Callable[..., object]
    names: tuple[str, ...]
    context: str | None

    async def __call__(self, bound: Bound, ctx: ToolContext) -> object:
        """Call it. A synchronous function runs in a thread, with the caller's context variables."""
        values = bound.values()
        wanted: dict[str, object] = {name: values[name] for name in self.names}
        if self.context is not None:
            wanted[self.context] = ctx
        result: object
        if inspect.iscoroutinefunction(self.function):
            result = self.function(**wanted)
        else:
            result = await asyncio.to_thread(_call, self.function, wanted)
        return await result if inspect.isawaitable(result) else result


def read_signature(function: Callable[..., object], *, tool: str) -> tuple[Signature, Callback]:
    """Read a tool's function.

    Raises:
        ConfigurationError: names the parameter and how to fix it.
    """
    documented = _documented_parameters(inspect.getdoc(function) or "")
    fields: dict[str, tuple[object, FieldInfo]] = {}
    names: list[str] = []
    context: str | None = None
    for parameter, annotation in _parameters(function, tool=tool):
        if _is_context(annotation):
            if context is not None:
                raise ConfigurationError(f"tool {tool!r} has two ToolContext parameters; keep one")
            context = parameter.name
            continue
        fields[_field(len(names))] = _argument(parameter, annotation, documented.get(parameter.name), tool=tool)
        names.append(parameter.name)
    model, schema = _model(fields, tool=tool)
    signature = Signature(model=model, names=tuple(names), context=context, schema=schema)
    return signature, Callback(function=function, names=signature.names, context=context)


def read_hook(function: Callable[..., object], signature: Signature, *, tool: str, role: str) -> Callback:
    """Read a hook of a tool: it takes the tool's arguments by name, as many as it likes, and a ToolContext.

    Raises:
        ConfigurationError: it asks for something the tool does not have.
    """
    names: list[str] = []
    context: str | None = None
    for parameter, annotation in _parameters(function, tool=f"{tool}' ({role})", annotated=False):
        if _is_context(annotation) or (annotation is parameter.empty and parameter.name == signature.context):
            context = parameter.name
        elif parameter.name in signature.names:
            names.append(parameter.name)
        elif parameter.default is parameter.empty:
            raise ConfigurationError(
                f"{role} of tool {tool!r} asks for {parameter.name!r}, which the tool does not have; it may take "
                f"{', '.join(map(repr, signature.names)) or 'no arguments'} and a parameter annotated ToolContext"
            )
    return Callback(function=function, names=tuple(names), context=context)


def description_of(doc: str | None) -> str:
    """A docstring without its sections: what the model reads about the tool."""
    lines: list[str] = []
    for line in inspect.cleandoc(doc or "").splitlines():
        if _SECTION.match(line):
            break
        lines.append(line)
    return "\n".join(lines).strip()


def _parameters(
    function: Callable[..., object], *, tool: str, annotated: bool = True
) -> list[tuple[inspect.Parameter, object]]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"tool {tool!r} is a generator; return a list instead")
    annotations = _annotations(function, tool=tool)
    found: list[tuple[inspect.Parameter, object]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigurationError(
                f"tool {tool!r} takes {parameter}; name each parameter, a model must know what it may send"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ConfigurationError(
                f"parameter {parameter.name!r} of tool {tool!r} is positional-only; arguments come by name: drop '/'"
            )
        annotation = annotations.get(parameter.name, parameter.empty)
        if annotated and annotation is parameter.empty:
            hint = "; for a method, decorate the class or use define_tool(instance.method)"
            raise ConfigurationError(
                f"parameter {parameter.name!r} of tool {tool!r} has no type; annotate it"
                + (hint if parameter.name in ("self", "cls") else "")
            )
        found.append((parameter, annotation))
    return found


def _annotations(function: Callable[..., object], *, tool: str) -> Mapping[str, object]:
    plain = inspect.unwrap(function)
    plain = getattr(plain, "__func__", plain)  # of a bound method
    raw = {name: value for name, value in inspect.get_annotations(plain).items() if name != "return"}
    try:
        return typing.get_type_hints(
            SimpleNamespace(__annotations__=raw),
            globalns=getattr(plain, "__globals__", {}),
            localns=_closure(plain),
            include_extras=True,
        )
    except Exception as error:
        raise ConfigurationError(
            f"the annotations of tool {tool!r} cannot be read ({error}); "
            "import or define its types at module level, outside `if TYPE_CHECKING`"
        ) from error


def _closure(function: Callable[..., object]) -> dict[str, object]:
    """Names of enclosing functions that `function` uses, for annotations written as text."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found: dict[str, object] = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        with contextlib.suppress(ValueError):  # an empty cell: a function that calls itself is not bound yet
            found[name] = cell.cell_contents
    return found


def _is_context(annotation: object) -> bool:
    if annotation is ToolContext:
        return True
    members = get_args(annotation)  # `ToolContext | None = None` lets tests call the function without one
    return len(members) == 2 and ToolContext in members and NoneType in members


def _argument(
    parameter: inspect.Parameter, annotation: object, description: str | None, *, tool: str
) -> tuple[object, FieldInfo]:
    if isinstance(parameter.default, FieldInfo):
        raise ConfigurationError(
            f"parameter {parameter.name!r} of tool {tool!r} has Field(...) as its default; write "
            f"Annotated[..., Field(...)] and a plain default, so that the function can be called as it is"
        )
    own = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    if description is not None and not any(getattr(info, "description", None) for info in own):
        annotation = Annotated[annotation, Field(description=description)]
    # Pydantic forbids some field names (`_x`, `copy`, `model_x`); as an alias every name is allowed.
    if parameter.default is parameter.empty:
        return annotation, Field(alias=parameter.name)
    return annotation, Field(alias=parameter.name, default=parameter.default)


def _model(fields: dict[str, tuple[object, FieldInfo]], *, tool: str) -> tuple[type[BaseModel], JsonObject]:
    try:
        model = create_model("Arguments", __config__=_CONFIG, **fields)  # type: ignore[call-overload]
        schema = model.model_json_schema(schema_generator=_Schema)
    except (PydanticUserError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(f"no JSON schema can be made for tool {tool!r}: {reason}") from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return model, as_object(schema, what=f"schema of tool {tool!r}")


def _field(index: int) -> str:
    return f"argument_{index}"


def _call(function: Callable[..., object], arguments: dict[str, object]) -> object:
    try:
        return function(**arguments)
    except StopIteration as error:
        # A future refuses to carry StopIteration, and whoever awaits it would wait for ever.
        raise RuntimeError("StopIteration") from error


def _documented_parameters(doc: str) -> dict[str, str]:
    """Descriptions from a Google-style ``Args:`` section."""
    found: dict[str, str] = {}
    inside, indent, current = False, 0, None
    for line in doc.splitlines():
        if match := _SECTION.match(line):
            inside, indent, current = match[1].lower() in ("args", "arguments", "parameters"), 0, None
            continue
        if not inside or not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            inside = False
            continue
        indent = indent or depth
        if depth == indent and (entry := _DOCUMENTED.match(line.strip())):
            current = entry[1]
            found[current] = entry[2]
        elif current is not None:
            found[current] = f"{found[current]} {line.strip()}".strip()
    return found
