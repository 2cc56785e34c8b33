"""Find the files of the model that a server has loaded: by its process, or in the cache of Hugging Face or Ollama.

Nothing is downloaded. Paths are those of the server: relative to its working directory, below its own cache, and in a
container below its root, where that can be read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from swarmtui.files import read_file
from swarmtui.model.base import DECODE_ERRORS, BadInput
from swarmtui.model.speed_of_light import ModelShape
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.telemetry.model_files.reader import read_model

# Flags that name a model, in the order in which they count.
_FLAGS = ("model", "model-path", "hf-repo", "hf", "LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO")
_REPOSITORY = re.compile(r"([A-Za-z0-9][\w.-]*)/([A-Za-z0-9][\w.-]*)(?::[\w.-]+)?")
_MAX_MANIFEST = 1 << 20


class Place(NamedTuple):
    """Where paths of a server's process start: its working directory, its root and its environment."""

    cwd: Path
    root: Path
    environment: Mapping[str, str]


def with_model(server: DiscoveredServer, model_path: str = "") -> DiscoveredServer:
    """Add the shape of the server's model, or why it is not known; a path that the user names counts first."""
    shape, problem = find_shape(server, model_path)
    return msgspec.structs.replace(server, shape=shape, shape_problem=problem)


def find_shape(server: DiscoveredServer, model_path: str = "") -> tuple[ModelShape | None, str]:
    try:
        if model_path:
            return read_model(Path(model_path).expanduser()), ""
        flags, places = server.flags or {}, _places(server.pid)
        named = [flags[name] for name in _FLAGS if flags.get(name)]
        if not named and not server.models:
            return None, "the server does not say which files it has loaded"
        paths = [path for name in named for place in places for path in _paths(name, place)]
        # A name in a model list is that of a repository; it is a path of this host only if the server runs here.
        listed = [name for name in server.models if server.pid is not None or not name.startswith("/")]
        paths += [
            path
            for name in listed
            for place in places
            for path in (_paths(name, place) if name.startswith("/") else _cached(name, place))
        ]
        for path in paths:
            if _exists(path):
                return read_model(path), ""
    except BadInput as error:
        return None, str(error)
    return None, f"the files of {(named or server.models)[0]} were not found on this host"


def _places(pid: int | None) -> list[Place]:
    """Return where to look: as the process of the server would, then as this process."""
    own = Place(Path.cwd(), Path("/"), os.environ)
    if pid is None:
        return [own]
    try:
        process = psutil.Process(pid)
        return [Place(Path(process.cwd()), Path(f"/proc/{pid}/root"), process.environ()), own]
    except (psutil.Error, OSError):
        return [own]


def _paths(name: str, place: Place) -> Iterator[Path]:
    path = Path(name)
    yield _below(place.root, place.cwd / path)
    if not path.is_absolute():
        yield from _cached(name, place)


def _below(root: Path, path: Path) -> Path:
    """Return a path of a process as this process sees it; in a container it may lead elsewhere."""
    inside = root / path.relative_to("/") if path.is_absolute() else path
    same = _exists(path) and _exists(inside) and inside.samefile(path)
    return path if same or not _exists(inside) else inside


def _cached(name: str, place: Place) -> Iterator[Path]:
    repository = _REPOSITORY.fullmatch(name)
    if repository:
        for hub in _hubs(place.environment):
            yield from _snapshots(place.root, hub / f"models--{repository.group(1)}--{repository.group(2)}")
    yield from _ollama_blob(name, place)


def _hubs(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the directories in which Hugging Face may keep its cache, by the variables that it reads."""
    for variable, below in (("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if value := environment.get(variable):
            yield Path(value) / below
    cache = environment.get("XDG_CACHE_HOME")
    home = environment.get("HOME", "/root")
    yield (Path(cache) if cache else Path(home) / ".cache") / "huggingface" / "hub"


def _snapshots(root: Path, repository: Path) -> Iterator[Path]:
    """Yield the snapshot of the main branch, then the others, newest first."""
    found = _below(root, repository)
    try:
        main = read_file(found / "refs" / "main", 256).decode("ascii", "replace").strip()
        if re.fullmatch(r"[0-9a-f]{7,64}", main):
            yield found / "snapshots" / main
    except OSError:
        pass
    try:
        others = sorted((found / "snapshots").iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return
    yield from others[:16]


def _ollama_blob(name: str, place: Place) -> Iterator[Path]:
    """Yield the GGUF file of a model of Ollama, by its manifest."""
    home = place.environment.get("HOME", "/root")
    stores = [Path(place.environment.get("OLLAMA_MODELS") or f"{home}/.ollama/models")]
    stores.append(Path("/usr/share/ollama/.ollama/models"))
    plain = re.fullmatch(r"(?:([\w.-]+)/)?([\w.-]+)(?::([\w.-]+))?", name)
    if plain is None:
        return
    owner, model, tag = plain.group(1) or "library", plain.group(2), plain.group(3) or "latest"
    for store in stores:
        manifest = _below(place.root, store / "manifests" / "registry.ollama.ai" / owner / model / tag)
        digest = _model_digest(manifest)
        if digest:
            yield _below(place.root, store / "blobs" / digest.replace(":", "-"))


class _Layer(msgspec.Struct):
    mediaType: str = ""
    digest: str = ""


class _Manifest(msgspec.Struct):
    layers: list[_Layer] = []


def _model_digest(manifest: Path) -> str:
    try:
        found = msgspec.json.decode(read_file(manifest, _MAX_MANIFEST), type=_Manifest)
    except (OSError, *DECODE_ERRORS):
        return ""
    digests = [layer.digest for layer in found.layers if layer.mediaType == "application/vnd.ollama.image.model"]
    return next((digest for digest in digests if re.fullmatch(r"sha256[:-][0-9a-f]{64}", digest)), "")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
