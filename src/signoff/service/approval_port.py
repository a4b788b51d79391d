"""Decisions from a console: the same path, without the chat's check of who may decide."""

from signoff.domain.actor import Actor
from signoff.errors import NotFound
from signoff.service.decide import Decided, DecisionRequest, Verb, decide
from signoff.service.deps import Deps


class ApprovalPort:
    """For surfaces that guard their own door (a governance console, an operator's script).

    `executed_by_ref` is who decided, as that surface knows them; it is recorded as the decider.
    """

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    async def approve(
        self,
        call_id: str,
        *,
        executed_by_ref: str,
        remember: bool = False,
        decided_via: str = "console",
        digest: str | None = None,
    ) -> Decided:
        """Approve the card; `digest` is what it showed. Raises as `decide`, never `Forbidden` for lack of a role."""
        request = DecisionRequest(call_id=call_id, verb=Verb.APPROVE, remember=remember, via=decided_via, digest=digest)
        return await self._decide(request, executed_by_ref)

    async def reject(
        self, call_id: str, *, executed_by_ref: str, reason: str | None = None, decided_via: str = "console"
    ) -> Decided:
        """Reject the card. Raises as `approve`."""
        request = DecisionRequest(call_id=call_id, verb=Verb.REJECT, reason=reason, via=decided_via)
        return await self._decide(request, executed_by_ref)

    async def _decide(self, request: DecisionRequest, executed_by_ref: str) -> Decided:
        call = await self._deps.store.read(lambda tx: tx.call(request.call_id))
        if call is None:
            raise NotFound("call", request.call_id)
        decider = Actor(id=executed_by_ref, tenant=call.tenant)
        return await decide(self._deps, decider, request, by_port=True)
