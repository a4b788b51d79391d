"""Model names to models. The provider libraries are extras: nothing of them is imported before a name needs it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from signoff.errors import ConfigurationError
from signoff.ports.model import Model

if TYPE_CHECKING:
    from pydantic_ai.models import Model as PydanticAiModel

    from signoff.adapters.models.provider_model import ProviderModel

#: Makes the model that a provider knows under this name (the part after the colon).
ModelFactory: TypeAlias = "Callable[[str], PydanticAiModel]"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAICompatible:
    """A server that speaks OpenAI's API: vLLM, Ollama, a gateway, a proxy.

    Args:
        base_url: up to and including the version, e.g. ``"http://localhost:11434/v1"``.
        api_key: left out where the server asks for none. `OPENAI_API_KEY` is never sent to it.
        api: ``"chat"`` for chat completions, ``"responses"`` where the server speaks the newer API.
        name: who sends the bill, as the price list calls it, e.g. ``"openai"`` for a proxy in front of OpenAI. The
            default has no price.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    api: Literal["chat", "responses"] = "chat"
    name: str = "self-hosted"

    def __call__(self, model: str) -> "PydanticAiModel":
        """See `ModelFactory`."""
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
        from pydantic_ai.profiles.openai import OpenAIModelProfile
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        provider = OpenAICompatibleProvider(
            self.name,
            base_url=self.base_url,
            api_key=self.api_key,
            # A stream that a proxy cut off ends without one; half a reply must not pass for a whole one.
            profile=OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True),
        )
        match self.api:
            case "chat":
                return OpenAIChatModel(model, provider=provider)
            case "responses":
                return OpenAIResponsesModel(model, provider=provider)


class PydanticAiCatalog:
    """Models by name, through pydantic-ai.

    A name is ``<provider>:<model>``. Providers that pydantic-ai knows (``openai``, ``anthropic``, ``google``, …)
    take their key and address from the environment; `providers` adds others, or replaces one.

    Args:
        providers: how to make a model, by the part of the name before the colon.
        models: ready models by their whole name.
    """

    def __init__(
        self,
        *,
        providers: Mapping[str, ModelFactory] | None = None,
        models: "Mapping[str, PydanticAiModel] | None" = None,
    ) -> None:
        self._providers = dict(providers or {})
        self._ready = dict(models or {})
        self._made: dict[str, ProviderModel] = {}

    def model(self, name: str) -> Model:
        """See `ports.model.ModelCatalog`. The same name gives the same model, so its connections are shared."""
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    async def aclose(self) -> None:
        """Close the connections of all models. They open again when a model is used."""
        for model in self._made.values():
            await model.aclose()

    def _make(self, name: str) -> "ProviderModel":
        provider, _, model = name.partition(":")
        if name not in self._ready and not (provider and model):
            raise ConfigurationError(
                f"model {name!r} does not say whose it is: write '<provider>:<model>', for example 'openai:gpt-5-mini'"
            )
        try:
            from pydantic_ai.exceptions import UserError

            from signoff.adapters.models.provider_model import ProviderModel
        except ImportError as error:
            raise ConfigurationError(_missing_library(name, provider, error)) from error
        try:
            return ProviderModel(self._inner(name, provider, model), name=name)
        except ImportError as error:
            raise ConfigurationError(_missing_library(name, provider, error)) from error
        except (UserError, ValueError) as error:
            raise ConfigurationError(_unusable(name, error)) from error

    def _inner(self, name: str, provider: str, model: str) -> "PydanticAiModel":
        if name in self._ready:
            return self._ready[name]
        if provider in self._providers:
            return self._providers[provider](model)
        from pydantic_ai.models import infer_model

        return infer_model(name)


#: pydantic-ai's extras that are ours as well.
_OUR_EXTRAS = frozenset({"openai", "anthropic"})


def _missing_library(name: str, provider: str, error: ImportError) -> str:
    """pydantic-ai names its own extra in the error; where pydantic-ai itself is missing, the provider's name is it."""
    named = re.search(r"pydantic-ai-slim\[([\w-]+)\]", str(error))
    extra = named[1] if named else provider.split("-")[0]
    if extra in _OUR_EXTRAS:
        package = f"signoff[{extra}]"
    else:
        package = f"pydantic-ai-slim[{extra}]" if named else "signoff[models]"
    return f"model {name!r} needs a library that is not installed: pip install '{package}'"


def _unusable(name: str, error: Exception) -> str:
    variable = re.search(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", str(error))
    if variable:
        return f"model {name!r} cannot be used: set the environment variable {variable[0]}"
    return f"model {name!r} cannot be used: {error}"
