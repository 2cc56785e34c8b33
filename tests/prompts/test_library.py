from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import swarmtui
from swarmtui.model.base import BadInput
from swarmtui.prompts.library import WorkloadFile, builtin_workloads, find_workload, workload_digest


def test_builtin_workload_is_found_by_name() -> None:
    found = find_workload("coding")
    assert found.workload.name == "coding"
    assert Path(found.source).read_text(encoding="utf-8") == found.text
    assert found.base == Path(found.source).parent


def test_misspelt_name_gets_a_suggestion_and_the_list() -> None:
    with pytest.raises(BadInput) as caught:
        find_workload("codng")
    message = str(caught.value)
    known = "built-in: agents, chat, coding, coding-agent, "
    assert message.startswith(f"no workload or file named 'codng'; did you mean coding? {known}")
    assert all(found.workload.name in message for found in builtin_workloads())


def test_unknown_name_gets_the_list() -> None:
    with pytest.raises(BadInput, match=r"^no workload or file named 'zzz'; built-in: agents, chat, coding"):
        find_workload("zzz")


def test_data_file_is_relative_to_the_workload_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('kind = "prompts"\nname = "mine"\nprompts = [{ text = "hello" }]\n', encoding="utf-8")
    found = find_workload(str(path))
    assert (found.workload.name, found.source, found.base) == ("mine", str(path), tmp_path)


def test_missing_file_error_names_the_builtin_workload(tmp_path: Path) -> None:
    missing = tmp_path / "nothing.toml"
    with pytest.raises(BadInput) as caught:
        find_workload(str(missing))
    assert str(caught.value) == f"{missing}: no such file"
    with pytest.raises(BadInput, match="the built-in workload is called coding"):
        find_workload(str(tmp_path / "coding.toml"))


def test_folder_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="contains no trace files"):
        find_workload(str(tmp_path))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b'kind = "prompts"\nname = "\xff\xfe"\n')
    with pytest.raises(BadInput) as caught:
        find_workload(str(binary))
    assert str(caught.value) == f"{binary}:2: not UTF-8 text"


def test_builtin_workloads_are_named_after_their_files() -> None:
    assert [Path(found.source).stem for found in builtin_workloads()] == [
        found.workload.name for found in builtin_workloads()
    ]
    assert {found.workload.name for found in builtin_workloads()} >= {
        "coding", "chat", "random-1k-1k", "long-prefill", "conversation",
    }  # fmt: skip


def test_built_in_workloads_are_told_from_files_of_the_same_name(written: Callable[[str], WorkloadFile]) -> None:
    mine = written('kind = "random"\nname = "coding"\ninput_tokens = 8\noutput_tokens = 8\n')
    assert not find_workload(mine.source).builtin
    assert all(found.builtin and find_workload(found.source) == found for found in builtin_workloads())


def test_digest_depends_on_workload_and_data_only(tmp_path: Path, written: Callable[[str], WorkloadFile]) -> None:
    text = 'kind = "jsonl"\nname = "own"\nfile = "data.jsonl"\n'
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "one"}\n', encoding="utf-8")
    first = workload_digest(written(text))
    assert first == workload_digest(written(text))
    assert first == workload_digest(written("# a comment\n" + text))
    assert len(first) == 16
    int(first, 16)
    assert first != workload_digest(written(text + "temperature = 0.5\n"))
    data.write_text('{"prompt": "two"}\n', encoding="utf-8")
    assert first != workload_digest(written(text))
    data.unlink()
    with pytest.raises(BadInput, match=r"file: no such file: .*data\.jsonl"):
        workload_digest(written(text))


def test_import_is_cheap() -> None:
    code = "import sys, swarmtui.prompts.generator; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "swarmtui.prompts.generator" in modules
    assert not {"asyncio", "httpx2", "statistics", "numpy", "click", "json", "swarmtui.loadgen"} & set(modules)


def test_workloads_are_found_in_a_wheel(tmp_path: Path) -> None:
    package = Path(swarmtui.__file__).parent
    for part in ("model", "prompts"):
        shutil.copytree(package / part, tmp_path / "swarmtui" / part)
    shutil.copy(package / "files.py", tmp_path / "swarmtui")
    (tmp_path / "swarmtui" / "__init__.py").touch()
    (tmp_path / "swarmtui" / "workloads").mkdir()
    shutil.copy(find_workload("chat").source, tmp_path / "swarmtui" / "workloads" / "chat.toml")
    code = "from swarmtui.prompts import library; print(*(found.source for found in library.builtin_workloads()))"
    listed = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert listed.stdout.split() == [str(tmp_path / "swarmtui" / "workloads" / "chat.toml")]
