"""Read AMD and Intel GPUs from sysfs, without vendor libraries."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from swarmtui.model.telemetry import Gpu

ROOT = Path("/sys/class/drm")
_VENDORS = {"0x1002": "AMD", "0x8086": "Intel"}
_THROTTLE_REASONS = {
    "pl1": "power cap", "pl2": "power cap", "pl4": "power cap", "ratl": "power cap", "vr_tdc": "power cap",
    "thermal": "thermal", "prochot": "hardware thermal", "vr_thermalert": "hardware thermal",
}  # fmt: skip
# In order of precedence; 0 means that the limit is off.
_LIMITS = ("power1_cap", "power1_max", "power2_max", "power1_rated_max", "power2_rated_max")
_MIN_POWER_S = 0.2


class SysfsReader:
    """Read the AMD and Intel cards under `root`. Never raises; a missing file leaves its value None."""

    def __init__(self, root: Path = ROOT, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._last_energy: dict[str, tuple[float, float, float | None]] = {}
        self.problem = ""

    def read(self, *, full: bool = True) -> tuple[Gpu, ...]:
        gpus = tuple(self._card(card, index) for index, card in enumerate(_cards(self._root)))
        self.problem = "" if gpus else f"no AMD or Intel GPU under {self._root}; GPU panel off"
        return gpus

    def close(self) -> None:
        pass

    def _card(self, card: Path, index: int) -> Gpu:
        device = card / "device"
        hwmon = next(iter(sorted((device / "hwmon").glob("hwmon*"))), device / "hwmon")
        found = re.search(r"^PCI_SLOT_NAME=(\S+)", _text(device / "uevent"), re.MULTILINE)
        slot = found.group(1) if found else card.name
        uuid = _text(device / "unique_id") or slot
        energy_j = _first(hwmon, ("energy1_input", "energy2_input"), 1e-6)  # the card, else its chip
        used, total = _integer(device / "mem_info_vram_used"), _integer(card / "lmem_total_bytes")
        if used is None and total is not None and (free := _integer(card / "lmem_avail_bytes")) is not None:
            used = total - free
        limit = next((watts for name in _LIMITS if (watts := _scaled(hwmon / name, 1e-6))), None)
        return Gpu(
            uuid=uuid,
            index=index,
            name=_name(device, slot),
            memory_used=used,
            memory_total=_integer(device / "mem_info_vram_total") or total,
            power_w=_first(hwmon, ("power1_average", "power1_input"), 1e-6) or self._power_from_energy(uuid, energy_j),
            power_limit_w=limit,
            energy_j=energy_j,
            utilisation=_scaled(device / "gpu_busy_percent", 1e-2),
            temperature_c=_temperature(hwmon, ("junction", "edge", "pkg")),
            sm_mhz=_clock_mhz(card, hwmon),
            sm_max_mhz=_integer(device / "tile0/gt0/freq0/rp0_freq") or _integer(card / "gt_RP0_freq_mhz"),
            throttle=_throttle(card),
        )

    def _power_from_energy(self, uuid: str, energy_j: float | None) -> float | None:
        """Return the mean power since an earlier read, for cards that report only energy."""
        if energy_j is None:
            return None
        now = self._clock()
        at, before_j, power_w = self._last_energy.get(uuid, (now, energy_j, None))
        if uuid not in self._last_energy or now - at >= _MIN_POWER_S:
            power_w = (energy_j - before_j) / (now - at) if now > at and energy_j >= before_j else None
            self._last_energy[uuid] = (now, energy_j, power_w)
        return power_w


def _cards(root: Path) -> Iterator[Path]:
    """Yield card0, card1 …, without connectors (card0-HDMI-A-1) and cards of other vendors."""
    found = [path for path in root.glob("card*") if re.fullmatch(r"card\d+", path.name)]
    for card in sorted(found, key=lambda path: int(path.name.removeprefix("card"))):
        if _text(card / "device/vendor") in _VENDORS:
            yield card


def _text(path: Path) -> str:
    """Return a file's text; empty if it is missing or the driver returns an error."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _integer(path: Path) -> int | None:
    text = _text(path)
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _scaled(path: Path, scale: float) -> float | None:
    value = _integer(path)
    return None if value is None else value * scale


def _first(folder: Path, names: tuple[str, ...], scale: float) -> float | None:
    return next((value for name in names if (value := _scaled(folder / name, scale)) is not None), None)


def _name(device: Path, slot: str) -> str:
    vendor = _VENDORS[_text(device / "vendor")]
    product = _text(device / "product_name") or _text(device / "device").removeprefix("0x")
    number = not product or re.fullmatch(r"[0-9a-f]{4}", product)
    return " ".join(filter(None, (vendor, product, "at", slot))) if number else product


def _temperature(hwmon: Path, labels: tuple[str, ...]) -> float | None:
    """Read the sensor with the first of these labels; a single unlabelled sensor is the GPU's."""
    by_label = {_text(path): path.name.removesuffix("_label") for path in hwmon.glob("temp*_label")}
    name = next((by_label[label] for label in labels if label in by_label), None)
    if name is None and not by_label and "edge" in labels:
        name = "temp1"
    return None if name is None else _scaled(hwmon / f"{name}_input", 1e-3)


def _clock_mhz(card: Path, hwmon: Path) -> int | None:
    known = _integer(card / "device/tile0/gt0/freq0/act_freq"), _integer(card / "gt_act_freq_mhz")
    chip = _scaled(hwmon / "freq1_input", 1e-6)
    return next((value for value in known if value is not None), None if chip is None else round(chip))


def _throttle(card: Path) -> tuple[str, ...] | None:
    """Read Intel's one file per reason: under the tile with xe, next to the card with i915."""
    files = [*card.glob("device/tile*/gt*/freq0/throttle/reason_*"), *card.glob("gt/gt*/throttle_reason_*")]
    known = [(path.name.rpartition("reason_")[2], _text(path)) for path in files]
    known = [(reason, text) for reason, text in known if reason != "status" and text]
    if not known:
        return None
    return tuple(sorted({_throttle_reason(reason) for reason, text in known if text != "0"}))


def _throttle_reason(reason: str) -> str:
    """Translate a reason; newer kernels add more in the same style: psys_pl1, soc_thermal, iccmax …"""
    known = _THROTTLE_REASONS.get(reason)
    if known is None and "therm" in reason:
        return "thermal"
    return known or ("power cap" if re.search(r"pl\d|icc|tdc", reason) else reason)
