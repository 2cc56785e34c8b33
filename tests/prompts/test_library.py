from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import swarmtui
from swarmtui.model.schema import BadInput
from swarmtui.prompts.library import WorkloadFile, find_workload, shipped_workloads, workload_digest


def test_a_shipped_workload_is_found_by_its_name() -> None:
    found = find_workload("coding")
    assert found.workload.name == "coding"
    assert Path(found.source).read_text(encoding="utf-8") == found.text
    assert found.base == Path(found.source).parent


def test_a_misspelt_name_gets_a_suggestion_and_the_list() -> None:
    with pytest.raises(BadInput) as caught:
        find_workload("codng")
    told = str(caught.value)
    assert told.startswith("no workload 'codng'; did you mean coding? shipped: chat, coding, conversation, ")
    assert all(found.workload.name in told for found in shipped_workloads())


def test_a_name_like_no_other_gets_the_list_only() -> None:
    with pytest.raises(BadInput, match=r"^no workload 'zzz'; shipped: chat, coding"):
        find_workload("zzz")


def test_a_path_is_read_with_its_folder_as_base(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('kind = "prompts"\nname = "mine"\nprompts = [{ text = "hello" }]\n', encoding="utf-8")
    found = find_workload(str(path))
    assert (found.workload.name, found.source, found.base) == ("mine", str(path), tmp_path)


def test_a_missing_file_is_named_and_a_shipped_one_of_that_name_is_pointed_at(tmp_path: Path) -> None:
    missing = tmp_path / "nothing.toml"
    with pytest.raises(BadInput) as caught:
        find_workload(str(missing))
    assert str(caught.value) == f"{missing}: no such file"
    with pytest.raises(BadInput, match="the shipped workload is called coding"):
        find_workload(str(tmp_path / "coding.toml"))


def test_a_folder_and_a_file_that_is_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        find_workload(str(tmp_path))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b'kind = "prompts"\nname = "\xff\xfe"\n')
    with pytest.raises(BadInput) as caught:
        find_workload(str(binary))
    assert str(caught.value) == f"{binary}:2: not UTF-8 text"


def test_shipped_are_all_files_and_are_called_after_them() -> None:
    assert [Path(found.source).stem for found in shipped_workloads()] == [
        found.workload.name for found in shipped_workloads()
    ]
    assert {found.workload.name for found in shipped_workloads()} >= {
        "coding", "chat", "random-1k-1k", "long-prefill", "conversation",
    }  # fmt: skip


def test_the_digest_follows_the_workload_and_its_data(tmp_path: Path, written: Callable[[str], WorkloadFile]) -> None:
    text = 'kind = "jsonl"\nname = "own"\nfile = "data.jsonl"\n'
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "one"}\n', encoding="utf-8")
    first = workload_digest(written(text))
    assert first == workload_digest(written(text))
    assert first == workload_digest(written("# a comment of one's own\n" + text))
    assert len(first) == 16
    int(first, 16)
    assert first != workload_digest(written(text + "temperature = 0.5\n"))
    data.write_text('{"prompt": "two"}\n', encoding="utf-8")
    assert first != workload_digest(written(text))
    data.unlink()
    with pytest.raises(BadInput, match=r"file: no such file: .*data\.jsonl"):
        workload_digest(written(text))


def test_importing_is_cheap_and_brings_nothing_heavy() -> None:
    code = "import sys, swarmtui.prompts.generator; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "swarmtui.prompts.generator" in modules
    assert not {"asyncio", "httpx2", "statistics", "numpy", "click", "json", "swarmtui.loadgen"} & set(modules)


def test_in_a_wheel_the_workloads_lie_inside_the_package(tmp_path: Path) -> None:
    package = Path(swarmtui.__file__).parent
    for part in ("model", "prompts"):
        shutil.copytree(package / part, tmp_path / "swarmtui" / part)
    (tmp_path / "swarmtui" / "__init__.py").touch()
    (tmp_path / "swarmtui" / "workloads").mkdir()
    shutil.copy(find_workload("chat").source, tmp_path / "swarmtui" / "workloads" / "chat.toml")
    code = "from swarmtui.prompts.library import shipped; print(*(found.source for found in shipped()))"
    listed = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert listed.stdout.split() == [str(tmp_path / "swarmtui" / "workloads" / "chat.toml")]
