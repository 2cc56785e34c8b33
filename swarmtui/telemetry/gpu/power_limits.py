"""Read and set the power limits of NVIDIA GPUs: not above a GPU's default, and not below its minimum."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

from swarmtui.model.base import SettingFailed, Stored
from swarmtui.telemetry.gpu.nvml import error_name, error_text

# Drivers may round a limit.
_TOLERANCE_W = 1.0

PowerCode = Literal["no_driver", "no_gpu", "permission", "range", "not_kept", "failed"]


class PowerLimit(Stored, frozen=True, kw_only=True):
    """The limit of a GPU, its default and the lowest one that NVML allows, in watts."""

    uuid: str
    index: int
    watts: float
    default_w: float
    min_w: float


class PowerProblem(SettingFailed):
    """A power limit cannot be read or set; the text says why."""

    def __init__(self, code: PowerCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def read_power_limits() -> tuple[PowerLimit, ...]:
    """Return the limits of all GPUs that have one."""
    with _open_nvml() as nvml:
        found = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            with suppress(nvml.NVMLError_NotSupported):
                found.append(_read(nvml, handle, index))
    if not found:
        raise PowerProblem("no_gpu", "no NVIDIA GPU here has a power limit that can be set")
    return tuple(found)


def check_watts(limit: PowerLimit, watts: float) -> None:
    if not limit.min_w <= watts <= limit.default_w:
        raise PowerProblem(
            "range",
            f"GPU {limit.index} takes limits from {limit.min_w:g} W to its default of {limit.default_w:g} W, "
            f"not {watts:g} W",
        )


def set_power_limit(limit: PowerLimit, watts: float) -> None:
    """Set the limit of a GPU, and read it back."""
    check_watts(limit, watts)
    _set(limit.uuid, limit.index, watts)


def check_permission(limit: PowerLimit) -> None:
    """Find out whether limits can be set, by setting the present one again."""
    _set(limit.uuid, limit.index, limit.watts)


def restore_power_limit(uuid: str, index: int, before_w: float, ours: tuple[float, ...]) -> float | None:
    """Set the limit from before, unless somebody else has changed it since; return the limit that was replaced.

    `ours` are the limits that were set in between.
    """
    with _open_nvml() as nvml:
        watts = nvml.nvmlDeviceGetPowerManagementLimit(nvml.nvmlDeviceGetHandleByUUID(uuid)) / 1e3
    if _same(watts, before_w) or not any(_same(watts, one) for one in ours):
        return None
    _set(uuid, index, before_w)
    return float(watts)


def _set(uuid: str, index: int, watts: float) -> None:
    with _open_nvml() as nvml:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        try:
            nvml.nvmlDeviceSetPowerManagementLimit(handle, round(watts * 1e3))
        except nvml.NVMLError as error:
            if error_name(error) == "NoPermission":
                raise PowerProblem("permission", f"setting the power limit of GPU {index} needs root") from None
            raise
        kept = nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3
    if not _same(kept, watts):
        raise PowerProblem("not_kept", f"GPU {index} has a limit of {kept:g} W although {watts:g} W was set")


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= _TOLERANCE_W


def _read(nvml: Any, handle: Any, index: int) -> PowerLimit:
    uuid = nvml.nvmlDeviceGetUUID(handle)
    lowest, _ = nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    return PowerLimit(
        uuid=uuid.decode() if isinstance(uuid, bytes) else uuid,
        index=index,
        watts=nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3,
        default_w=nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1e3,
        min_w=lowest / 1e3,
    )


@contextmanager
def _open_nvml() -> Iterator[Any]:
    """Open NVML; its errors become a PowerProblem."""
    try:
        import pynvml
    except ImportError:
        raise PowerProblem("no_driver", "the package nvidia-ml-py is missing") from None
    try:
        pynvml.nvmlInit()
        try:
            yield pynvml
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        missing = error_name(error) == "LibraryNotFound"
        text = "no NVIDIA GPU found (no driver)" if missing else error_text(error)
        raise PowerProblem("no_driver" if missing else "failed", text) from None
