"""A pynvml that real processes import: GPUs whose power limits are in a file, with the errors of the real package."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

# The module itself. Who computes on a GPU is read from the files pid-INDEX beside it.
_MODULE = '''
import importlib.machinery, importlib.util, json, os, sys, time
from pathlib import Path
from types import SimpleNamespace

_HERE = Path(__file__).parent
_found = importlib.machinery.PathFinder.find_spec("pynvml", [one for one in sys.path if Path(one) != _HERE])
# Under a name of its own: it looks itself up to define its errors.
_spec = importlib.util.spec_from_file_location("real_pynvml", _found.origin)
_real = sys.modules["real_pynvml"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_real)
globals().update({name: value for name, value in vars(_real).items() if not name.startswith("__")})


def _gpus():
    return json.loads((_HERE / "gpus.json").read_text())


def _gpu(handle):
    return _gpus()[handle]


def _unsupported(*arguments):
    raise NVMLError(NVML_ERROR_NOT_SUPPORTED)


for _name in [name for name in globals() if name.startswith("nvmlDevice")]:
    globals()[_name] = _unsupported


def nvmlInit():
    if not _gpus():
        raise NVMLError(NVML_ERROR_LIBRARY_NOT_FOUND)


def nvmlShutdown():
    pass


def nvmlDeviceGetCount():
    return len(_gpus())


def nvmlDeviceGetHandleByIndex(index):
    return index


def nvmlDeviceGetHandleByUUID(uuid):
    for index, gpu in enumerate(_gpus()):
        if gpu["uuid"] == uuid:
            return index
    raise NVMLError(NVML_ERROR_NOT_FOUND)


def nvmlDeviceGetUUID(handle):
    return _gpu(handle)["uuid"]


def nvmlDeviceGetName(handle):
    return "NVIDIA Fake"


def nvmlDeviceGetPowerManagementLimit(handle):
    return _gpu(handle)["watts"] * 1000


nvmlDeviceGetEnforcedPowerLimit = nvmlDeviceGetPowerManagementLimit


def nvmlDeviceGetPowerManagementDefaultLimit(handle):
    return _gpu(handle)["default"] * 1000


def nvmlDeviceGetPowerManagementLimitConstraints(handle):
    return [_gpu(handle)["min"] * 1000, _gpu(handle)["max"] * 1000]


def nvmlDeviceGetMemoryInfo(handle, version=None):
    return SimpleNamespace(total=80 << 30, reserved=0, used=40 << 30, free=40 << 30)


def nvmlDeviceGetTotalEnergyConsumption(handle):
    """What a GPU takes at its limit, at all times."""
    gpu = _gpu(handle)
    return int(gpu["joules"] * 1000 + (time.monotonic() - gpu["since"]) * gpu["watts"] * 1000)


def nvmlDeviceGetComputeRunningProcesses(handle):
    files = [_HERE / f"pid-{handle}"]
    return [SimpleNamespace(pid=int(path.read_text()), usedGpuMemory=1 << 30) for path in files if path.exists()]


def nvmlDeviceSetPowerManagementLimit(handle, limit):
    gpus = _gpus()
    gpu = gpus[handle]
    if gpu["refuses"]:
        raise NVMLError(NVML_ERROR_NO_PERMISSION)
    with (_HERE / "sets").open("a") as log:
        log.write(f"{handle} {limit // 1000}\\n")
    if gpu["stuck"]:
        return
    now = time.monotonic()
    gpu["joules"] += (now - gpu["since"]) * gpu["watts"]
    gpu["since"], gpu["watts"] = now, limit // 1000
    temporary = _HERE / f".gpus-{os.getpid()}"
    temporary.write_text(json.dumps(gpus))
    temporary.replace(_HERE / "gpus.json")
'''


class FakeNvml:
    """GPUs from 200 to 700 W; `directory` belongs in front of PYTHONPATH."""

    def __init__(self, directory: Path, gpus: int = 1, **fields: Any) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "pynvml.py").write_text(_MODULE)
        each = {"watts": 700, "default": 700, "min": 200, "max": 900, "joules": 0.0, "since": 0.0,
                "refuses": False, "stuck": False} | fields  # fmt: skip
        self._write([each | {"uuid": f"GPU-{number}"} for number in range(gpus)])

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
        """Let this process import it."""
        spec = importlib.util.spec_from_file_location("pynvml", self.directory / "pynvml.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setitem(sys.modules, "pynvml", module)
        return self

    def limits(self) -> list[int]:
        return [gpu["watts"] for gpu in json.loads((self.directory / "gpus.json").read_text())]

    def set_limits(self) -> list[tuple[int, int]]:
        """GPU and limit of each call that set one, in order."""
        path = self.directory / "sets"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    def change(self, gpu: int, **fields: Any) -> None:
        gpus = json.loads((self.directory / "gpus.json").read_text())
        gpus[gpu] |= fields
        self._write(gpus)

    def _write(self, gpus: list[dict[str, Any]]) -> None:
        temporary = self.directory / ".gpus-test"
        temporary.write_text(json.dumps(gpus))
        temporary.replace(self.directory / "gpus.json")
