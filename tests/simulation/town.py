"""The world around the application in a simulation: bank, mail server, model provider. No process takes it along.

Every effect and every reply is a place at which the process that asked for it can end: before, in the middle, after.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol, Unpack

from signoff import Tool, ToolContext, define_tool
from signoff.domain.call import Call
from signoff.domain.jsonvalue import JsonObject
from signoff.ports.model import ModelEvent, Prompt
from signoff.testing.clock import FakeClock
from signoff.testing.outside import Bank, MailServer
from signoff.testing.scripted import Answer, ScriptedModel
from signoff.testing.strict import StrictModel
from signoff.tools.definition import ToolOptions


class Mark(Protocol):
    """A place; see `testing.places.Places.mark`."""

    def __call__(self, what: str, /) -> None: ...


class Town:
    """What is outside. `says`: the replies of the model by the message that it answers."""

    def __init__(self, says: Mapping[str, Sequence[Answer]], *, mark: Mark) -> None:
        self.bank = Bank()
        self.mail = MailServer()
        self.reads = 0
        self.mark = mark
        self.scripted = ScriptedModel.by_message(says, clock=FakeClock())
        self.strict = StrictModel(self.scripted)
        self.model = _Provider(self.strict, mark)
        self._outcomes: dict[str, JsonObject] = {}

    # --- what tools do --------------------------------------------------------------------------------------

    def pay(self, order: str, cents: int, *, key: str | None = None) -> JsonObject:
        """Refund an order, and say what a tool would return."""
        self.mark(f"before refund {order}")
        self.bank.refund(order, cents, key=key)
        receipt: JsonObject = {"refunded": order, "cents": cents}
        self._outcomes[f"refund {order}"] = receipt
        self.mark(f"after refund {order}")
        return receipt

    def post(self, to: str) -> JsonObject:
        """Send a mail, and say what a tool would return."""
        self.mark(f"before mail {to}")
        self.mail.send(to, "Hello")
        receipt: JsonObject = {"mailed": to}
        self._outcomes[f"send_mail {to}"] = receipt
        self.mark(f"after mail {to}")
        return receipt

    def outcome_of(self, call: Call) -> JsonObject | None:
        """What a person finds who looks whether the action of this call has happened."""
        arguments = call.final_arguments
        assert isinstance(arguments, dict)
        return self._outcomes.get(f"{call.name} {next(iter(arguments.values()))}")

    # --- tools ----------------------------------------------------------------------------------------------

    def refund(self, **options: Unpack[ToolOptions]) -> Tool:
        """An action. The bank learns the call's key only from a tool that is `idempotent`."""
        with_key = options.get("idempotent", False)

        async def refund(order: str, ctx: ToolContext, cents: int = 500) -> JsonObject:
            return self.pay(order, cents, key=ctx.idempotency_key if with_key else None)

        options["kind"] = "action"
        return define_tool(refund, **options)

    def send_mail(self) -> Tool:
        """An action whose effect can be counted but never undone."""

        async def send_mail(to: str) -> JsonObject:
            return self.post(to)

        return define_tool(send_mail, kind="action")

    def get_order(self) -> Tool:
        """A read."""

        async def get_order(order: str) -> JsonObject:
            self.mark(f"before read {order}")
            self.reads += 1
            self.mark(f"after read {order}")
            return {"order": order, "cents": 500}

        return define_tool(get_order)


class _Provider:
    """The model, with places around its replies."""

    def __init__(self, inner: StrictModel, mark: Mark) -> None:
        self._inner = inner
        self._mark = mark
        self.name = inner.name

    async def reply(self, prompt: Prompt) -> AsyncIterator[ModelEvent]:
        """See `ports.model.Model`."""
        self._mark("before reply")
        begun = False
        async for event in self._inner.reply(prompt):
            yield event
            if not begun:
                self._mark("in reply")
                begun = True
        self._mark("after reply")
