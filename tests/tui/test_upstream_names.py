"""The private names of Textual and Rich that the app depends on exist: a renamed one would silently disable a patch."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest
import rich.console
import rich.segment
import textual.app
import textual.driver
import textual.drivers._writer_thread
import textual.drivers.linux_driver
import textual.screen
import textual.widget
import textual.widgets._input

from swarmtui import tui
from swarmtui.tui import textual_patches

# What the patched classes add; everything else in them overrides a name of Textual.
ADDED = {
    "PartialUpdate": {"_parts"},
    "PatchedApp": {
        "_with_size_classes", "action_redraw", "action_suspend", "first_screen", "on_key", "on_mount", "output_pending",
        "resumed", "terminal_closed",
    },
    "Terminal": {"_restart", "closed", "output_pending", "suspend"},
}  # fmt: skip

# What Textual sets in every class, and fields of ours.
GENERATED = {*vars(type("Empty", (textual.widget.Widget,), {})), "_abc_impl"}
FIELDS = {"_shown", "_styled_screen", "_styled_with", "_terminal_cells"}
PATCHED = (
    textual.app, textual.driver, textual.drivers._writer_thread, textual.drivers.linux_driver, textual.screen,
    textual.widget, textual.widgets._input, rich.console, rich.segment,
)  # fmt: skip


def app_modules() -> list[ModuleType]:
    names = [module.name for module in pkgutil.walk_packages(tui.__path__, "swarmtui.tui.") if not module.ispkg]
    return [importlib.import_module(name) for name in names]


def own_classes(module: ModuleType) -> list[type]:
    return [kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__ == module.__name__]


def upstream_names(kind: type) -> set[str]:
    return {name for base in kind.__mro__ if base.__module__.startswith("textual") for name in vars(base)}


def own_names(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("__")} - GENERATED


@pytest.mark.parametrize("kind", own_classes(textual_patches), ids=lambda kind: str(kind.__name__))
def test_every_patched_name_exists_in_textual(kind: type) -> None:
    assert own_names(kind) - ADDED.get(kind.__name__, set()) <= upstream_names(kind)


def test_only_the_patches_override_private_names() -> None:
    """Also not by accident: a method of ours with the name of a private one would replace it."""
    found = [
        f"{kind.__module__}.{kind.__name__}.{name}"
        for module in app_modules()
        if module is not textual_patches
        for kind in own_classes(module)
        for name in own_names(kind) & upstream_names(kind)
        if name.startswith("_")
    ]
    assert not found


def test_every_private_attribute_that_the_patches_use_exists_upstream() -> None:
    tree = ast.parse(Path(textual_patches.__file__).read_text())
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    private = {name for name in attributes if name.startswith("_") and not name.startswith("__")}
    known = {name for module in PATCHED for name in re.findall(r"\w+", inspect.getsource(module))}
    assert private - FIELDS - set().union(*ADDED.values()) <= known
