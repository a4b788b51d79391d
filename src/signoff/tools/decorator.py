"""`@tool`: mark a function or a class as a tool and leave it usable as it was."""

import re
from collections.abc import Callable
from typing import TypeVar, Unpack, cast, overload

from signoff.errors import ConfigurationError
from signoff.tools.definition import Tool, ToolOptions, define_tool
from signoff.tools.signature import description_of

F = TypeVar("F", bound=Callable[..., object])

_MARK = "__signoff_tool__"
_HOOK_METHODS = ("probe", "prepare", "execute_check")


@overload
def tool(target: F, /) -> F: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[F], F]: ...


def tool(target: F | None = None, /, **options: Unpack[ToolOptions]) -> F | Callable[[F], F]:
    """Mark a function or a class as a tool.

    The function stays a plain function: call it as it is in unit tests. A class needs a method `execute`, and
    may have `prepare`, `execute_check` and `probe`; pass an *instance* to `Agent(tools=[...])`, so that it can
    hold what it depends on. Options are those of `ToolOptions`; without any, `@tool` makes a read.

    Raises:
        ConfigurationError: at decoration; names the tool, what cannot work, and how to fix it.
    """

    def mark(marked: F) -> F:
        if isinstance(marked, type):
            _of_class(marked, options)
            setattr(marked, _MARK, options)
            return marked
        definition = define_tool(marked, **options)
        try:
            setattr(marked, _MARK, definition)
        except AttributeError as error:
            raise ConfigurationError(
                f"{definition.name!r} cannot be marked (a bound method, say); use define_tool(...) instead of @tool"
            ) from error
        return marked

    return mark if target is None else mark(target)


def as_tool(value: object) -> Tool:
    """The tool that an item of `tools=[...]` stands for: a `Tool`, a marked function, an instance of a marked class.

    Raises:
        ConfigurationError: it is none of these; says how to fix it.
    """
    if isinstance(value, Tool):
        return value
    mark = getattr(value, _MARK, None)
    if isinstance(value, type):
        fix = f"pass an instance: {value.__name__}(...)" if mark is not None else "decorate it with @tool"
        raise ConfigurationError(f"class {value.__name__!r} is no tool by itself; {fix}")
    match mark:
        case Tool(run=run) if run is not None and run.function is value:
            return mark
        case Tool():
            # `functools.wraps` copied the mark: running what it names would leave the wrapper out.
            raise ConfigurationError(f"tool {mark.name!r} was wrapped after @tool; put @tool on top of its decorators")
        case dict():
            return _of_instance(value, type(value), cast("ToolOptions", mark))
    raise ConfigurationError(f"{value!r} is no tool; decorate it with @tool, or use define_tool(...)")


def _of_class(cls: type, options: ToolOptions) -> None:
    """Fail at decoration, not at start: everything but `self` can be checked without an instance."""
    if not callable(getattr(cls, "execute", None)):
        raise ConfigurationError(f"tool class {cls.__name__!r} needs a method `execute`")
    for hook in _HOOK_METHODS:
        if hook in options and hasattr(cls, hook):
            raise ConfigurationError(f"tool class {cls.__name__!r} has both a method and an option {hook!r}; keep one")
    try:
        blank: object = object.__new__(cls)
    except TypeError:  # abstract, or built in another way: checked when an instance is passed
        return
    _of_instance(blank, cls, options)  # only the signatures of its methods are read


def _of_instance(instance: object, cls: type, options: ToolOptions) -> Tool:
    filled = ToolOptions(**options)
    filled.setdefault("name", _snake_case(cls.__name__))
    execute = getattr(instance, "execute")  # noqa: B009  # a class says no more than "callable" about it
    filled.setdefault("description", description_of(cls.__doc__) or description_of(execute.__doc__))
    for hook in _HOOK_METHODS:
        if (method := getattr(instance, hook, None)) is not None:
            filled[hook] = method  # type: ignore[literal-required]
    return define_tool(execute, **filled)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
