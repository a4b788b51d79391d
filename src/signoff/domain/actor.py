"""Who acts. Never invented: it comes from the application's own session, or the request is refused."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The acting identity.

    `id` is unique within `tenant`; `roles` are compared exactly, as the application spells them.
    """

    id: str
    roles: frozenset[str] = field(default_factory=frozenset)
    tenant: str = ""

    def holds(self, role: str) -> bool:
        """Whether the actor has `role`."""
        return role in self.roles

    def owns(self, *, actor_id: str, tenant: str) -> bool:
        """Whether a row with this owner is the actor's own."""
        return self.id == actor_id and self.tenant == tenant
