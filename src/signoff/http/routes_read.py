"""What a front end asks once: agents, tools, models, quota, settings."""

from fastapi import APIRouter, Depends
from starlette.responses import Response

from signoff.domain.actor import Actor
from signoff.http import present_catalog as present
from signoff.http.context import Door, reply
from signoff.http.paths import NameFilter
from signoff.http.problems import responses
from signoff.service import read


def add_read_routes(router: APIRouter, door: Door) -> None:
    """`/agents`, `/tools`, `/models`, `/quota`, `/config`."""
    deps = door.deps

    @router.get("/agents", responses=responses(ok=list[present.AgentSummary]))
    async def list_agents(_actor: Actor = Depends(door.caller)) -> Response:
        """The agents that can be talked to."""
        return reply([present.agent_summary(agent) for agent in read.list_agents(deps)])

    @router.get("/tools", responses=responses(404, ok=list[present.ToolListing]))
    async def list_tools(actor: Actor = Depends(door.caller), agent: NameFilter = None) -> Response:
        """The tools the caller may use: of the default agent, of `agent`, or of all (`*`)."""
        return reply([present.tool_listing(tool) for tool in await read.list_tools(deps, actor, agent)])

    @router.get("/models", responses=responses(404))
    async def list_models(actor: Actor = Depends(door.caller), agent: NameFilter = None) -> Response:
        """There is no catalog of models to choose from."""
        await read.list_tools(deps, actor, agent)  # an unknown agent is unknown here too
        return reply({"providers": [], "default": None})

    @router.get("/quota/today", responses=responses(ok=present.QuotaTodayView))
    async def get_quota_today(actor: Actor = Depends(door.caller)) -> Response:
        """What the caller has spent today (UTC)."""
        return reply(present.quota_today(await read.quota_today(deps, actor)))

    @router.get("/quota", responses=responses(ok=present.QuotaView))
    async def get_quota(actor: Actor = Depends(door.caller)) -> Response:
        """The caller's quota windows; none without a quota."""
        return reply(present.quota(await read.quota_windows(deps, actor)))

    @router.get("/config", responses=responses())
    async def get_config(actor: Actor = Depends(door.caller)) -> Response:
        """What this server offers."""
        return reply(
            {
                "attachments": {
                    "enabled": False,
                    "upload": None,
                    "maxBytes": 0,
                    "allowedContentTypes": [],
                    "maxPerMessage": 0,
                },
                "models": {"enabled": False},
                "quota": {"enforced": bool(await read.quota_windows(deps, actor))},
                "identity": {"anonymous": False},
                # Our own: false says that the durable engine could not start, or was not asked for (C57).
                "durable": deps.runner.durable,
            }
        )
