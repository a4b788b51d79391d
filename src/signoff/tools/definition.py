"""A tool: what the model is told about it, who may use it, and what runs."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypedDict, Unpack

from signoff.domain.approval import Requirement
from signoff.domain.call import ToolKind
from signoff.domain.jsonvalue import Json, JsonObject, as_object, digest, normalise
from signoff.errors import ConfigurationError, NotJson, TooLarge
from signoff.ports.model import OfferedTool
from signoff.tools.context import ToolContext
from signoff.tools.signature import Bound, Callback, Signature, bind, description_of, read_hook, read_signature

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_PRESENTATION_BYTES_MAX = 64 * 1024
_ACTION_ONLY = ("idempotent", "probe", "prepare", "execute_check", "approval", "target")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. Made by `@tool` or `define_tool`.

    `roles` are alternatives; none means the application's default role is needed. `ability` is checked by the
    application's authorizer. `timeout` bounds one call, retries included, never the time a person takes.

    Of an action: `idempotent` says that running it twice under one idempotency key has one effect;
    `probe(...)` finds out after a crash whether the effect happened (see `tools.probe`); `prepare(...)`
    (before the card) and `execute_check(...)` (right before running) are its preflight (see
    `approvals.preflight`); `approval` is its own requirement; `target` is what the card points at.

    `presentation` is handed to front ends as it is. `run` is None for what the turn itself carries out
    (delegation). `schema_version` changes with the name or the schema.
    """

    name: str
    description: str
    kind: ToolKind
    signature: Signature
    run: Callback | None
    roles: frozenset[str] = frozenset()
    ability: str | None = None
    timeout: timedelta | None = None
    idempotent: bool = False
    probe: Callback | None = None
    prepare: Callback | None = None
    execute_check: Callback | None = None
    approval: Requirement | None = None
    target: JsonObject | None = None
    presentation: JsonObject | None = None
    schema_version: str = field(init=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"{self.name!r} is no tool name: use 1-64 letters, digits, '_' and '-', not starting with a digit "
                "or '-'; pass name=... to rename it"
            )
        version = digest({"name": self.name, "schema": self.schema})[:12]
        object.__setattr__(self, "schema_version", version)

    @property
    def schema(self) -> JsonObject:
        """JSON schema of the arguments."""
        return self.signature.schema

    def parse(self, arguments: Json) -> Bound:
        """The arguments (JSON text, or parsed), checked.

        Raises:
            InvalidArguments: in words for the model.
        """
        return bind(self.signature, arguments)

    async def invoke(self, bound: Bound, ctx: ToolContext) -> object:
        """Run the user's function and return what it returns. See `tools.invoke` for limits and errors."""
        if self.run is None:
            raise ConfigurationError(f"tool {self.name!r} is carried out by the turn, it has no function")
        return await self.run(bound, ctx)

    def offered(self) -> OfferedTool:
        """What the model is told."""
        return OfferedTool(name=self.name, description=self.description, schema=self.schema)


class ToolOptions(TypedDict, total=False):
    """Keyword arguments of `@tool` and `define_tool`; see `Tool` for what they mean.

    `name` defaults to the function's name (a class's in snake_case), `description` to the docstring, `kind`
    to ``"read"``. Hooks take the tool's arguments by name, as many as they like, and may be synchronous.
    """

    name: str
    description: str
    kind: ToolKind | Literal["read", "action"]
    roles: Collection[str]
    ability: str
    timeout: timedelta
    idempotent: bool
    probe: Callable[..., object]
    prepare: Callable[..., object]
    execute_check: Callable[..., object]
    approval: Requirement
    target: Mapping[str, object]
    presentation: Mapping[str, object]


def define_tool(function: Callable[..., object], **options: Unpack[ToolOptions]) -> Tool:
    """A tool from any callable, e.g. a bound method, without decorating it.

    Raises:
        ConfigurationError: names the tool, what cannot work, and how to fix it.
    """
    name = options.get("name") or str(getattr(function, "__name__", type(function).__name__))
    kind = _kind(options.get("kind", ToolKind.READ), tool=name)
    _check_options(options, kind, tool=name)
    signature, run = read_signature(function, tool=name)

    def hook(role: Literal["probe", "prepare", "execute_check"]) -> Callback | None:
        given = options.get(role)
        return None if given is None else read_hook(given, signature, tool=name, role=role)

    return Tool(
        name=name,
        description=options.get("description") or description_of(getattr(function, "__doc__", None)),
        kind=kind,
        signature=signature,
        run=run,
        roles=frozenset(options.get("roles", ())),
        ability=options.get("ability"),
        timeout=options.get("timeout"),
        idempotent=options.get("idempotent", False),
        probe=hook("probe"),
        prepare=hook("prepare"),
        execute_check=hook("execute_check"),
        approval=options.get("approval"),
        target=_json_object(options.get("target"), what=f"target of tool {name!r}"),
        presentation=_json_object(options.get("presentation"), what=f"presentation of tool {name!r}"),
    )


def _kind(given: str, *, tool: str) -> ToolKind:
    if given not in (ToolKind.READ, ToolKind.ACTION):
        raise ConfigurationError(
            f"tool {tool!r} has kind {given!r}; use 'read' or 'action', and delegates_to=[...] for agents"
        )
    return ToolKind(given)


def _check_options(options: ToolOptions, kind: ToolKind, *, tool: str) -> None:
    unknown = sorted(set(options) - ToolOptions.__optional_keys__)
    if unknown:
        raise ConfigurationError(f"tool {tool!r} has no option {unknown[0]!r}")
    if isinstance(roles := options.get("roles", ()), str) or not all(isinstance(role, str) for role in roles):
        raise ConfigurationError(f"roles of tool {tool!r} must be a set of names, e.g. roles={{'support'}}")
    timeout: object = options.get("timeout")
    if timeout is not None and not (isinstance(timeout, timedelta) and timeout > timedelta(0)):
        raise ConfigurationError(f"timeout of tool {tool!r} must be a timedelta above zero")
    for option in _ACTION_ONLY:
        if kind is ToolKind.READ and options.get(option):
            raise ConfigurationError(
                f"tool {tool!r} is a read and runs at once, so {option}=... has no meaning; "
                "drop it, or declare kind='action'"
            )


def _json_object(value: Mapping[str, object] | None, *, what: str) -> JsonObject | None:
    if value is None:
        return None
    try:
        return as_object(normalise(value, what=what, bytes_max=_PRESENTATION_BYTES_MAX), what=what)
    except (NotJson, TooLarge) as error:
        raise ConfigurationError(str(error)) from error
