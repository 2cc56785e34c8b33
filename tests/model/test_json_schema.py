"""Recorded and new documents validate against the schemas, and have no fields that the schemas do not name."""

from __future__ import annotations

import json
import shutil
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from swarmtui.model.base import BadInput
from swarmtui.model.json_schema import DOCUMENTS, json_schema
from swarmtui.sessions.store import load_session, summarise, write_summary
from tests.cli.programs import open_sandbox
from tests.client.test_config import CONFIG
from tests.sessions.session_builders import full_session, write_session

ROOT = Path(__file__).parents[2]
RECORDED = sorted((ROOT / "tests").glob("*/recorded/*/journal.jsonl"))
WORKLOADS = sorted((ROOT / "workloads").glob("*.toml"))


@cache
def strict_validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json_schema(name)
    for definition in schema["$defs"].values():
        if definition["type"] == "object":
            definition["additionalProperties"] = False
    return jsonschema.Draft202012Validator(schema)


def validate(name: str, document: Any) -> None:
    strict_validator(name).validate(document)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schema_is_valid_and_describes_every_definition(name: str) -> None:
    schema = json_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert all(definition["title"] == title for title, definition in schema["$defs"].items())


@pytest.mark.parametrize("journal", RECORDED, ids=lambda path: path.parent.name)
def test_recorded_session_validates(journal: Path, tmp_path: Path) -> None:
    for line in journal.read_text().splitlines():
        validate("journal", json.loads(line))
    directory = tmp_path / journal.parent.name
    shutil.copytree(journal.parent, directory)
    write_summary(directory)
    validate("detail", json.loads((directory / "detail.json").read_bytes()))
    validate("summary", tomllib.loads((directory / "summary.toml").read_text()))
    validate("detail", json.loads(msgspec.json.encode(summarise(load_session(tmp_path, "last")))))


def test_new_session_validates(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "label": "a",
        "note": "b",
        "server_flags": "--tp 2",
        "previous": "x",
        "tags": {"heads": "40", "ab": "n"},
    }
    directory = write_session(tmp_path / "20261115-014455-3f9a", full_session(**fields))
    write_summary(directory)
    for line in (directory / "journal.jsonl").read_text().splitlines():
        validate("journal", json.loads(line))
    validate("detail", json.loads((directory / "detail.json").read_bytes()))
    validate("summary", tomllib.loads((directory / "summary.toml").read_text()))


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda path: path.stem)
def test_builtin_workload_validates(workload: Path) -> None:
    validate("workload", tomllib.loads(workload.read_text()))


def test_config_validates_and_an_unknown_key_does_not() -> None:
    validate("config", tomllib.loads(CONFIG))
    with pytest.raises(jsonschema.ValidationError, match="colour"):
        jsonschema.validate({"colour": "red"}, json_schema("config"))


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="did you mean journal"):
        json_schema("jornal")
    with pytest.raises(BadInput, match="known are journal, detail, summary, workload, config, events"):
        json_schema("everything")


def test_schema_command(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        listed, journal, unknown = (
            sandbox.run("schema"),
            sandbox.run("schema", "journal"),
            sandbox.run("schema", "nope"),
        )
    assert [line.split()[0] for line in listed.out.splitlines()] == list(DOCUMENTS)
    assert json.loads(journal.out) == json.loads(msgspec.json.encode(json_schema("journal")))
    assert "no schema named 'nope'" in unknown.error_line(2)
