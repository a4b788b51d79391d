"""What happens in a simulation, and what people do in it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from signoff import Agent, Verb
from signoff.domain.actor import Actor
from signoff.domain.call import Call
from signoff.domain.jsonvalue import JsonObject
from signoff.testing.scripted import Answer
from signoff.testing.world import World
from tests.simulation.town import Town


class Scene(Protocol):
    """Where people act: the application as it is now, and the town."""

    @property
    def world(self) -> World: ...

    @property
    def town(self) -> Town: ...


ANA = Actor(id="ana")
BO = Actor(id="bo", roles=frozenset({"manager"}))
CLEO = Actor(id="cleo", roles=frozenset({"manager"}))
DEE = Actor(id="dee", roles=frozenset({"deputy"}))

People = Callable[[Scene, Call], Awaitable[bool]]
"""Somebody sees an open card and does something about it. False: nobody does, for now.

After a crash they see the card again, if it is still open, and do the same again.
"""


async def approve(scene: Scene, card: Call) -> bool:
    """Say yes."""
    await scene.world.approve(card)
    return True


async def nobody(_scene: Scene, _card: Call) -> bool:
    """Be away."""
    return False


def approve_with(*, remember: bool = False, arguments: JsonObject | None = None) -> People:
    """Say yes, and more."""

    async def act(scene: Scene, card: Call) -> bool:
        await scene.world.approve(card, remember=remember, arguments=arguments)
        return True

    return act


def reject(reason: str) -> People:
    """Say no."""

    async def act(scene: Scene, card: Call) -> bool:
        await scene.world.reject(card, reason)
        return True

    return act


def answer(**answers: list[str]) -> People:
    """Answer questions, and say yes to everything else."""

    async def act(scene: Scene, card: Call) -> bool:
        if card.request is None:
            return await approve(scene, card)
        await scene.world.answer(card, answers)
        return True

    return act


async def skip(scene: Scene, card: Call) -> bool:
    """Skip questions."""
    await scene.world.skip(card)
    return True


async def cancel(scene: Scene, card: Call) -> bool:
    """Stop the whole turn, and again a second later while the card still shows."""
    run = await scene.world.run(card.run_id)
    while run.parent_id is not None:
        run = await scene.world.run(run.parent_id)
    await scene.world.cancel(run.id)
    scene.world.clock.advance(timedelta(seconds=1))
    return True


async def look_outside(scene: Scene, card: Call) -> None:
    """What people do about an action in doubt: find out, then say that it happened, or let it run again."""
    found = scene.town.outcome_of(card)
    if found is None:
        await scene.world.approve(card, by=responsible(card))
    else:
        await scene.world.settle(card, found, by=responsible(card))


def responsible(card: Call) -> Actor:
    """Who decides this card, if it is not left to others."""
    return BO if card.approver == "manager" else ANA


async def cancel_once_parked(scene: Scene, card: Call) -> bool:
    """Stop the turn, but not before it has asked all it asks."""
    run = await scene.world.run(card.run_id)
    return run.parked and await cancel(scene, card)


def by_subject(**people: People) -> People:
    """Different people for calls with different first arguments."""

    async def act(scene: Scene, card: Call) -> bool:
        return await people[subject(card)](scene, card)

    return act


def voting(*voters: Actor) -> People:
    """Each of them says yes once, in this order."""

    async def act(scene: Scene, card: Call) -> bool:
        votes = await scene.world.read(lambda tx: tx.votes_of(card.id))
        voted = {vote.actor_id for vote in votes}
        next_ = next((voter for voter in voters if voter.id not in voted), None)
        if next_ is None:
            return False
        await scene.world.decide(card, Verb.APPROVE, by=next_)
        return True

    return act


def once_widened(deputy: Actor) -> People:
    """Nobody looks at the card until the ladder lets the deputy decide."""

    async def act(scene: Scene, card: Call) -> bool:
        if not card.widened:
            return False
        await scene.world.decide(card, Verb.APPROVE, by=deputy)
        return True

    return act


def subject(card: Call) -> str:
    """What the call is about: its first argument."""
    return str(next(iter(card.arguments.values()))) if isinstance(card.arguments, dict) and card.arguments else ""


def oldest_first(card: Call) -> str | int:
    """The order in which people take cards."""
    return card.id


def in_order(subjects: str) -> Callable[[Call], str | int]:
    """The order in which people take cards: by the subjects' place in the text."""
    return lambda card: subjects.index(subject(card))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scenario:
    """One story.

    `messages` are sent one after the other, each when the turn before has ended, in one thread. `order` is the order
    in which people take cards. `together`: they take all of them before anything else happens. `interleaves`: things
    happen side by side, so that a crash may change the order of what belongs to different calls. `settled_by`: what
    people do about an action in doubt.
    """

    name: str
    agents: Callable[[Town], Sequence[Agent]]
    says: Mapping[str, Sequence[Answer]]
    messages: tuple[str, ...] = ("Go on.",)
    people: People = approve
    order: Callable[[Call], str | int] = oldest_first
    together: bool = False
    interleaves: bool = False
    settled_by: Callable[[Scene, Call], Awaitable[None]] = look_outside

    def __str__(self) -> str:
        return self.name.replace(" ", "-")
