"""Delegation: the child run that a call of kind `agent` leads to, and the limits on it."""

from dataclasses import dataclass
from datetime import datetime

from signoff.agents.agent import Agent
from signoff.domain.call import Call
from signoff.domain.run import Run
from signoff.domain.thread import Message, Role, Thread
from signoff.ports.store import Tx
from signoff.turn.deps import TurnDeps
from signoff.turn.input import TurnInput

WORKFLOW = "agent.run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPlan:
    """The child run to be: its input, its task, and ids made once."""

    turn: TurnInput
    task: str
    message_id: str
    fingerprint: str
    depth: int

    @property
    def run_id(self) -> str:
        """The child's id."""
        return self.turn.run_id


async def plan(deps: TurnDeps, turn: TurnInput, agent: Agent, call: Call) -> ChildPlan | str:
    """The child run of `call`, or the text that tells the model which limit forbids it."""
    target = agent.delegate(call.name)
    if target is None:
        return f"{call.name!r} delegates to nobody"
    settings = deps.settings
    if len(turn.chain) > settings.depth_max:
        return f"delegation is limited to {settings.depth_max} levels; do this yourself"
    if turn.chain.count(target.target) >= settings.repeats_max:
        return f"the agent {target.target!r} is already at work in this chain; do this yourself"
    children = await deps.store.read(lambda tx: tx.children_of(turn.run_id))
    # Calls of this step that were claimed before this one are rows already: claims are made in call order.
    if len(children) >= settings.children_max:
        return f"one turn may delegate at most {settings.children_max} times; go on without"
    run_id = deps.ids.new("run")
    child = TurnInput(
        run_id=run_id,
        thread_id=deps.ids.new("thread"),
        stream_id=run_id if target.detached else turn.stream_id,
        actor=turn.actor,
        agent=target.target,
        page_context=turn.page_context,
        parent_id=turn.run_id,
        parent_call_id=call.id,
        detached=target.detached,
        chain=(*turn.chain, target.target),
    )
    found = deps.agents.get(target.target)
    arguments = call.arguments
    return ChildPlan(
        turn=child,
        task=str(arguments["task"]) if isinstance(arguments, dict) else "",
        message_id=deps.ids.new("msg"),
        fingerprint="" if found is None else found.fingerprint(),
        depth=len(turn.chain),
    )


def insert_child(tx: Tx, planned: ChildPlan, *, now: datetime) -> None:
    """The child's rows: a transient thread with the task in it, claimed by the child's run."""
    turn = planned.turn
    parent = tx.run(turn.parent_id or "")
    tx.insert_thread(
        Thread(
            id=turn.thread_id,
            actor_id=turn.actor.id,
            tenant=turn.actor.tenant,
            title=planned.task[:80],
            transient=True,
            created_at=now,
            updated_at=now,
            default_agent=turn.agent,
        )
    )
    tx.insert_message(
        Message(
            id=planned.message_id,
            thread_id=turn.thread_id,
            role=Role.USER,
            content=planned.task,
            run_id=turn.run_id,
            created_at=now,
        )
    )
    tx.insert_run(
        Run(
            id=turn.run_id,
            thread_id=turn.thread_id,
            actor_id=turn.actor.id,
            actor_roles=tuple(sorted(turn.actor.roles)),
            tenant=turn.actor.tenant,
            agent=turn.agent,
            stream_id=turn.stream_id,
            parent_id=turn.parent_id,
            parent_call_id=turn.parent_call_id,
            detached=turn.detached,
            depth=planned.depth,
            durable=parent is not None and parent.durable,
            owner=None if parent is None else parent.owner,
            lease_until=None if parent is None else parent.lease_until,
            input=turn.to_json(),
            fingerprint=planned.fingerprint,
            created_at=now,
        )
    )
    tx.claim_thread(turn.thread_id, turn.run_id)
