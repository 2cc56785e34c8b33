"""The APIs that the simulator serves, one file for each."""

from __future__ import annotations

from swarmtui.model.endpoint import PATHS
from swarmtui.sim.apis import messages, ollama, openai, responses
from swarmtui.sim.replies import SimApi

APIS: dict[str, SimApi] = {
    PATHS["chat"]: openai.CHAT,
    PATHS["messages"]: messages.API,
    PATHS["responses"]: responses.API,
    PATHS["completions"]: openai.COMPLETIONS,
    PATHS["ollama"]: ollama.API,
}
