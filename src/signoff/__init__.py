"""Durable AI agents whose dangerous actions wait for a person's sign-off."""

from signoff.agents.agent import Agent, Persona, PromptContext
from signoff.agents.ask import ask
from signoff.agents.delegate import Delegate
from signoff.app import Signoff
from signoff.approvals.links import DecisionLinks
from signoff.approvals.preflight import Confirmation, Denied, Done, Ready
from signoff.approvals.rules import RulesPolicy
from signoff.domain.actor import Actor
from signoff.domain.approval import Requirement, Rung, RungAction
from signoff.domain.elicitation import Input, Option, Question
from signoff.elicitation.intake import Intake
from signoff.errors import SignoffError, is_replay_integrity_error
from signoff.governance.quota import ActorQuota
from signoff.http.identity import HeaderActorResolver
from signoff.http.native import cors_options
from signoff.ports.events import Event, EventName
from signoff.ports.notifier import Notification
from signoff.service.decide import DecisionRequest, Verb
from signoff.service.send import SendRequest
from signoff.tools.context import ToolContext
from signoff.tools.decorator import tool
from signoff.tools.definition import Tool, define_tool
from signoff.tools.probe import Happened, NotHappened, Unknown
from signoff.turn.deps import TurnSettings

__all__ = [
    "Actor",
    "ActorQuota",
    "Agent",
    "Confirmation",
    "DecisionLinks",
    "DecisionRequest",
    "Delegate",
    "Denied",
    "Done",
    "Event",
    "EventName",
    "Happened",
    "HeaderActorResolver",
    "Input",
    "Intake",
    "NotHappened",
    "Notification",
    "Option",
    "Persona",
    "PromptContext",
    "Question",
    "Ready",
    "Requirement",
    "RulesPolicy",
    "Rung",
    "RungAction",
    "SendRequest",
    "Signoff",
    "SignoffError",
    "Tool",
    "ToolContext",
    "TurnSettings",
    "Unknown",
    "Verb",
    "ask",
    "cors_options",
    "define_tool",
    "is_replay_integrity_error",
    "tool",
]
