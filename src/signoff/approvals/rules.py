"""An approval policy that is data: rules by tool name and arguments, first match wins."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, ValidationError
from pydantic import model_validator as validator_of_model

from signoff.approvals.conditions import Answer, Condition, argument, conjunction
from signoff.approvals.requirement import ASK, may_decide_by_role
from signoff.domain.actor import Actor
from signoff.domain.approval import REQUESTER, Requirement, Rung, RungAction
from signoff.domain.call import Call
from signoff.domain.jsonvalue import Json
from signoff.domain.thread import Thread
from signoff.domain.validation import explain
from signoff.errors import ConfigurationError
from signoff.ports.policy import ToolView

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_DAYS_MAX = 3650

Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]


def _duration(value: object) -> timedelta:
    if isinstance(value, timedelta) and value > timedelta():
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) and len(value) <= 40 else None
    if match is None or not value:
        raise ValueError("a duration is a text such as '15m', '1h30m' or '2d'")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    if days + hours + minutes + seconds == 0:
        raise ValueError("a duration is longer than nothing")
    if days > _DAYS_MAX or hours > 24 * _DAYS_MAX or minutes > 1440 * _DAYS_MAX or seconds > 86400 * _DAYS_MAX:
        raise ValueError(f"a duration is at most {_DAYS_MAX} days")
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


Duration: TypeAlias = Annotated[timedelta, BeforeValidator(_duration)]


class RungRule(BaseModel):
    """``{ after = "10m", action = "remind" }`` or ``{ after = "20m", action = "widen", role = "lead" }``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    after: Duration
    action: RungAction
    role: Name | None = None

    @validator_of_model(mode="after")
    def _role_is_for_widening(self) -> Self:
        if (self.action is RungAction.WIDEN) != (self.role is not None):
            raise ValueError("a rung that widens needs a role, and one that reminds has none")
        return self


class Rule(BaseModel):
    """Which calls (`tool`, `when`), and what they need. The names are those of `Requirement`.

    `tool` is a name or a glob, or a list of them. `when` maps arguments (dotted for nested ones) to conditions,
    which must all hold. `name` is for error messages.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name | None = None
    tool: Name | tuple[Name, ...] = Field(min_length=1)
    when: Mapping[Name, Condition] = Field(default_factory=dict)
    required: StrictBool = True
    approver: Name = REQUESTER
    ttl: Duration | None = None
    quorum: StrictInt = Field(default=1, ge=1, le=100)
    may_requester: StrictBool = True
    reason: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    ladder: tuple[RungRule, ...] = Field(default=(), max_length=20)

    @validator_of_model(mode="after")
    def _can_be_met(self) -> Self:
        idle = sorted(self.model_fields_set & {"approver", "ttl", "quorum", "may_requester", "reason", "ladder"})
        if not self.required and idle:
            raise ValueError(f"nobody is asked with required = false, so {', '.join(idle)} would do nothing")
        alone = self.approver == REQUESTER and all(rung.role is None for rung in self.ladder)
        if alone and self.quorum > 1:
            raise ValueError("the requester is one person: a quorum above 1 needs a role as approver")
        if alone and not self.may_requester:
            raise ValueError("the requester is the only approver and may not approve: nobody could")
        late = [rung for rung in self.ladder if self.ttl is not None and rung.after >= self.ttl]
        if late:
            raise ValueError("a rung that comes at or after the ttl would never be reached")
        return self

    def matches(self, tool: str, arguments: Json) -> Answer:
        """Whether the rule covers this call; None if a condition could not be evaluated."""
        globs = (self.tool,) if isinstance(self.tool, str) else self.tool
        if not any(fnmatchcase(tool, glob) for glob in globs):
            return False
        return conjunction(condition.holds(argument(arguments, path)) for path, condition in self.when.items())

    def requirement(self) -> Requirement:
        """What a call that the rule covers needs."""
        return Requirement(
            required=self.required,
            approver=self.approver,
            ttl=self.ttl,
            quorum=self.quorum,
            may_requester=self.may_requester,
            reason=self.reason,
            ladder=tuple(Rung(after=rung.after, action=rung.action, role=rung.role) for rung in self.ladder),
        )


class RulesPolicy:
    """The first rule that covers a call says what it needs; without one the tool's own requirement holds.

    Doubt means ask. A rule that asks covers a call whose arguments it cannot judge (missing, of another type);
    one that lets calls through does not, and then nothing further down lets the call through either.
    """

    def __init__(self, rules: Sequence[Rule | Mapping[str, object]]) -> None:
        """`rules`: `Rule`s, or mappings as TOML has them. Raises `ConfigurationError`, which names rule and field."""
        self._rules = tuple(_rule(number, rule) for number, rule in enumerate(rules, start=1))

    @classmethod
    def from_toml(cls, source: Path | str) -> "RulesPolicy":
        """The rules of a TOML file (a `Path`) or of TOML text: an array of tables named ``rules``.

        Raises:
            ConfigurationError: not readable, not TOML, or a rule is wrong; names the file, the rule and the field.
        """
        where = str(source) if isinstance(source, Path) else "the rules"
        try:
            document = tomllib.loads(source.read_text("utf-8") if isinstance(source, Path) else source)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{where} cannot be read: {error}") from error
        except tomllib.TOMLDecodeError as error:
            hint = "" if isinstance(source, Path) or "\n" in source else "; to read a file, pass a Path"
            raise ConfigurationError(f"{where}: not TOML: {error}{hint}") from error
        rules = document.get("rules")
        if not isinstance(rules, list) or not rules or set(document) != {"rules"}:
            raise ConfigurationError(f"{where}: expected [[rules]] tables and nothing else, got {sorted(document)}")
        try:
            return cls(rules)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error}") from error

    def requirement_for(self, call: Call, tool: ToolView, actor: Actor, thread: Thread) -> Requirement:
        """See `ports.policy.ApprovalPolicy`."""
        del actor, thread
        doubtful = False
        for rule in self._rules:
            match rule.matches(tool.name, call.arguments):
                case True:
                    return _unless(doubtful, rule.requirement())
                case None if rule.required:
                    return rule.requirement()
                case None:
                    doubtful = True
                case False:
                    pass
        return _unless(doubtful, tool.approval or ASK)

    def can_decide(self, decider: Actor, call: Call) -> bool:
        """The requester decides for themselves, everyone else by role."""
        return may_decide_by_role(decider, call)


def _unless(doubtful: bool, requirement: Requirement) -> Requirement:
    """`requirement`, except that doubt lets nothing through."""
    return ASK if doubtful and not requirement.required else requirement


def _rule(number: int, rule: Rule | Mapping[str, object]) -> Rule:
    if isinstance(rule, Rule):
        return rule
    given: object = rule
    name = given.get("name") if isinstance(given, Mapping) else None
    label = f"rule {number} ({name!r})" if isinstance(name, str) else f"rule {number}"
    try:
        return Rule.model_validate(given)
    except ValidationError as error:
        raise ConfigurationError(f"{label}: {explain(error)}") from error
