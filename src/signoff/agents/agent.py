"""An agent: instructions, a model, tools, and who else it may call on. A value; it holds no state of a turn."""

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import date
from inspect import isawaitable
from typing import TypeAlias

from signoff.agents.delegate import Delegate
from signoff.domain.actor import Actor
from signoff.domain.jsonvalue import Json, JsonObject, as_object, digest, normalise
from signoff.domain.thread import Thread
from signoff.elicitation.intake import Intake
from signoff.errors import ConfigurationError, NotJson, TooLarge
from signoff.ports.model import Model
from signoff.tools.registry import ToolRegistry

# Six characters shorter than a tool's name, so that `start_<agent>` is one.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,57}")
_SETTINGS_BYTES_MAX = 16 * 1024


@dataclass(frozen=True, slots=True)
class Persona:
    """A way an agent can be spoken to: `instructions` are added to the agent's.

    `tools` is an allow-list of names among the agent's tools (delegations included); None allows all.
    """

    name: str
    label: str = ""
    instructions: str = ""
    tools: Collection[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptContext:
    """What instructions may depend on. `today` comes from the run's journal: a replay sees the same day."""

    actor: Actor
    thread: Thread
    agent: str
    today: date
    persona: Persona | None = None
    page_context: JsonObject | None = None


Instructions: TypeAlias = str | Callable[[PromptContext], str | Awaitable[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Agent:
    """One agent.

    Args:
        name: 1-58 letters, digits, "_" and "-"; unique in the application.
        instructions: the system prompt, or a function of a `PromptContext` (may be asynchronous).
        model: a catalog name such as ``"openai:gpt-5-mini"``, a `Model`, or None for the application's default.
        tools: functions and instances marked with `@tool`, `Tool`s, and `ask`.
        max_steps: how many model calls a turn may take.
        description: what users and delegating agents read.
        personas: ways to speak to it; `default_persona` names the one for threads that chose none.
        history_messages: at most that many stored messages are shown to the model.
        history_tokens: and at most about that many tokens of them; None means no such bound.
        settings: handed to the model as they are, e.g. ``{"temperature": 0}``.
        delegates_to: agents (or names, or `Delegate`s) it may hand tasks to.
        intake: questions asked before the work.

    Raises:
        ConfigurationError: names the agent, what cannot work, and how to fix it.
    """

    name: str
    instructions: Instructions = field(kw_only=True)
    model: str | Model | None = field(default=None, kw_only=True)
    tools: Sequence[object] = field(default=(), kw_only=True)
    max_steps: int = field(default=8, kw_only=True)
    description: str = field(default="", kw_only=True)
    personas: Sequence[Persona] = field(default=(), kw_only=True)
    default_persona: str | None = field(default=None, kw_only=True)
    history_messages: int = field(default=100, kw_only=True)
    history_tokens: int | None = field(default=None, kw_only=True)
    settings: JsonObject = field(default_factory=dict, kw_only=True)
    delegates_to: "Sequence[Agent | Delegate | str]" = field(default=(), kw_only=True)
    intake: Intake | None = field(default=None, kw_only=True)

    delegates: tuple[Delegate, ...] = field(init=False, repr=False)
    toolset: ToolRegistry = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"{self.name!r} is no agent name: use 1-58 letters, digits, '_' and '-', a letter or '_' first"
            )
        delegates = tuple(item if isinstance(item, Delegate) else Delegate(item) for item in self.delegates_to)
        toolset = ToolRegistry([*self.tools, *(delegate.tool() for delegate in delegates)], owner=self.name)
        object.__setattr__(self, "delegates", delegates)
        object.__setattr__(self, "toolset", toolset)
        object.__setattr__(self, "personas", tuple(self.personas))
        self._check_numbers()
        self._check_personas()
        self._check_settings()

    def persona(self, name: str | None) -> Persona | None:
        """The persona of this name, or the default one for None; None if there is no such persona."""
        wanted = name if name is not None else self.default_persona
        return next((persona for persona in self.personas if persona.name == wanted), None)

    def delegate(self, tool_name: str) -> Delegate | None:
        """The delegation behind a tool of kind `agent`."""
        return next((each for each in self.delegates if each.tool_name == tool_name), None)

    async def instructions_for(self, context: PromptContext) -> str:
        """The system prompt of a turn: the agent's instructions, then its persona's.

        Raises:
            ConfigurationError: the instructions function did not return text.
        """
        text: object = self.instructions if isinstance(self.instructions, str) else self.instructions(context)
        if isawaitable(text):
            text = await text
        if not isinstance(text, str):
            raise ConfigurationError(f"instructions of agent {self.name!r} must be text, not a {type(text).__name__}")
        more = context.persona.instructions if context.persona else ""
        return "\n\n".join(part for part in (text, more) if part)

    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with the definition: instructions, model, tools, personas."""
        model = self.model if self.model is None or isinstance(self.model, str) else self.model.name
        tools: Json = [[tool.name, tool.kind, tool.schema_version] for tool in self.toolset]
        personas: Json = [
            [persona.name, persona.instructions, None if persona.tools is None else list[Json](sorted(persona.tools))]
            for persona in self.personas
        ]
        definition: Json = {
            "instructions": _spelled(self.instructions),
            "model": model,
            "tools": tools,
            "personas": personas,
        }
        return digest(definition)[:16]

    def _check_numbers(self) -> None:
        for name, value in (
            ("max_steps", self.max_steps),
            ("history_messages", self.history_messages),
            ("history_tokens", self.history_tokens),
        ):
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} of agent {self.name!r} must be at least 1, not {value}")

    def _check_personas(self) -> None:
        names = [persona.name for persona in self.personas]
        for persona in self.personas:
            if not persona.name or names.count(persona.name) > 1:
                raise ConfigurationError(
                    f"agent {self.name!r} has two personas named {persona.name!r}, or one without a name"
                )
            if isinstance(persona.tools, str):
                raise ConfigurationError(f"tools of persona {persona.name!r} must be a list of names")
            unknown = sorted(set(persona.tools or ()) - set(self.toolset.names))
            if unknown:
                raise ConfigurationError(
                    f"persona {persona.name!r} of agent {self.name!r} allows the tool {unknown[0]!r}, which the agent "
                    f"does not have; it has {', '.join(self.toolset.names) or 'none'}"
                )
        if self.default_persona is not None and self.default_persona not in names:
            raise ConfigurationError(f"agent {self.name!r} has no persona {self.default_persona!r} to be the default")

    def _check_settings(self) -> None:
        what = f"settings of agent {self.name!r}"
        try:
            plain = as_object(normalise(self.settings, what=what, bytes_max=_SETTINGS_BYTES_MAX), what=what)
        except (NotJson, TooLarge) as error:
            raise ConfigurationError(str(error)) from error
        object.__setattr__(self, "settings", plain)


def _spelled(instructions: Instructions) -> str:
    if isinstance(instructions, str):
        return instructions
    kind = type(instructions)
    module = getattr(instructions, "__module__", kind.__module__)
    return f"{module}:{getattr(instructions, '__qualname__', kind.__qualname__)}"
