"""Change settings of a running server, as the live knobs of a tune say, and restore them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from swarmtui.client.held_settings import HeldCommand, HeldSettings, ServerPower, run_command
from swarmtui.experiments.grid import filled, split_command
from swarmtui.experiments.managed_server import server_environment
from swarmtui.experiments.server_guardian import LaunchCommand
from swarmtui.model.base import BadInput, SettingFailed
from swarmtui.model.parsing import parse_seconds
from swarmtui.model.redaction import Secrets
from swarmtui.model.tuning import Flags, LiveKnob, Value, format_flags


class KnobCommands(NamedTuple):
    apply: tuple[str, ...]
    restore: tuple[str, ...]


def knob_commands(knob: LiveKnob, value: Value, port: int | str) -> KnobCommands:
    texts = (filled(text, {"value": value, "port": port}) for text in (knob.apply, knob.restore))
    return KnobCommands(*(tuple(split_command(text, f"knob {knob.key}")) for text in texts))


class LiveSettings(HeldSettings):
    """The settings of one start of a server: `apply` values while it runs, then `restore` what was before."""

    def __init__(self, knobs: Sequence[LiveKnob], launch: LaunchCommand, secrets: Secrets) -> None:
        try:
            super().__init__()
        except OSError as error:
            raise BadInput(
                f"changed settings could not be written down, to restore them after a kill: {error.strerror}",
                source=str(error.filename or ""),
            ) from None
        self._knobs, self._launch, self._secrets = knobs, launch, secrets
        self._power: ServerPower | None = None
        self._current: Flags = {}

    def apply(self, flags: Flags) -> None:
        """Set what differs from the values that are set already."""
        for knob in self._knobs:
            value = flags[knob.key]
            if knob.key in self._current and self._current[knob.key] == value:
                continue
            self._current.pop(knob.key, None)
            try:
                self._set(knob, value)
            except (SettingFailed, OSError) as error:
                output = error.output if isinstance(error, SettingFailed) else ()
                raise SettingFailed(f"{format_flags({knob.key: value})} could not be set: {error}", output) from None
            self._current[knob.key] = value

    def _set(self, knob: LiveKnob, value: Value) -> None:
        if knob.kind == "power":
            if self._power is None:
                self._power = ServerPower(self._launch.url, knob.gpus, self)
            self._power.set(float(value))
            return
        commands = knob_commands(knob, value, urlsplit(self._launch.url).port or "")
        within_s, directory = parse_seconds(knob.within, "within"), self._launch.directory
        if commands.restore:
            self.add(HeldCommand(name=knob.key, restore=commands.restore, directory=directory, within_s=within_s))
        env = server_environment(self._secrets, self._launch.pass_env) | self._launch.env
        run_command(commands.apply, within_s, directory=directory, env=env)
