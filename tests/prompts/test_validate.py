from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from swarmtui.model.base import BadInput
from swarmtui.prompts.library import WorkloadFile, builtin_workloads, find_workload
from swarmtui.prompts.validate import describe_workload, validate_workload


def problem_texts(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "own.toml"
    path.write_text(text, encoding="utf-8")
    return [str(problem).removeprefix(str(path)) for problem in validate_workload(path)]


@pytest.mark.parametrize("found", builtin_workloads(), ids=lambda found: str(found.workload.name))
def test_builtin_workloads_have_no_problems(found: WorkloadFile) -> None:
    assert validate_workload(found.source) == []


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    text = """\
kind = "prompts"
temprature = 0.5
max_tokens = "many"

[[prompts]]
text = "good"

[[prompts]]
txt = "bad"

[[prompts]]
text = 5
max_token = 9
"""
    assert problem_texts(tmp_path, text) == [
        ": the key name is missing",
        ":2: temprature: unknown key, did you mean temperature?",
        ":3: max_tokens: expected a whole number, got text",
        ":8: prompts[1]: the key text is missing",
        ":9: prompts[1].txt: unknown key, did you mean text?",
        ":12: prompts[2].text: expected text, got a whole number",
        ":13: prompts[2].max_token: unknown key, did you mean max_tokens?",
    ]


def test_several_wrong_ids_are_not_called_duplicates(tmp_path: Path) -> None:
    text = """\
kind = "dag"
name = "odd"
[[tasks]]
id = "-"
text = "a"
[[tasks]]
id = "a b"
text = "b"
"""
    wrong = "expected text matching regex '^[A-Za-z][A-Za-z0-9_-]*$'"
    assert problem_texts(tmp_path, text) == [f":4: tasks[0].id: {wrong}", f":7: tasks[1].id: {wrong}"]


def test_no_problem_hides_another(tmp_path: Path) -> None:
    """Problems in the same table or list, below a wrong table, and semantic ones."""
    text = """\
kind = "mixed"
name = "many"
temprature = 1
temperature = -1
[load]
mode = "mixed"
levels = [1, "two", 2.5, 9]
lop = true
[primary]
turns = []
check = { regex = ["(", "[a-"] }
[[side]]
txt = "a"
[[side]]
text = "b"
max_tokens = 0
check = { all = "word", pythn = true }
"""
    assert [
        problem.partition(": ")[0] + problem.partition(": ")[2][:28] for problem in problem_texts(tmp_path, text)
    ] == [
        ":3temprature: unknown key, did",
        ":4temperature: expected a numb",
        ":7load.levels[1]: expected a w",
        ":7load.levels[2]: expected a w",
        ":8load.lop: unknown key, did y",
        ":10primary.turns: expected a li",
        ":11primary.check.regex[0]: not ",
        ":11primary.check.regex[1]: not ",
        ":12side[0]: the key text is mis",
        ":13side[0].txt: unknown key, di",
        ":16side[1].max_tokens: expected",
        ":17side[1].check.all: expected ",
        ":17side[1].check.pythn: unknown",
    ]


def test_invalid_choice_lists_the_choices(tmp_path: Path) -> None:
    load = 'kind = "random"\nname = "r"\ninput_tokens = 1\noutput_tokens = 1\n[load]\n'
    assert problem_texts(tmp_path, load + 'mode = "open"\nrate = 1\narrival = "poison"\n') == [
        ":8: load.arrival: invalid value 'poison'; "
        "expected one of constant, gamma, poisson, recorded; did you mean poisson?"
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('kind = "prompts"\nname = "p"\nx = = 1\n', ":3: not valid TOML"),
        ('kind = "prompt"\nname = "p"\n', "kind: invalid value 'prompt'"),
        ('name = "p"\n', "the key kind is missing"),
        ('kind = "prompts"\nname = "p"\n', "prompts: give either [[prompts]] or file"),
        ('kind = "prompts"\nname = "p"\nprompts = [3]\n', "prompts[0]: expected a table, got a whole number"),
        ('kind = "prompts"\nname = "p"\nprompts = "x"\n', ":3: prompts: expected a list, got text"),
        (
            'kind = "conversation"\nname = "c"\nconversations = []\n',
            ":3: conversations: expected a list of length >= 1",
        ),
        ('kind = "random"\nname = "r"\ninput_tokens = 5\n', "the key output_tokens is missing"),
        (
            'kind = "random"\nname = "r"\noutput_tokens = 1\ninput_tokens = { dist = "uniform", low = 9, high = 3 }\n',
            "input_tokens: low is above high",
        ),
    ],
)
def test_problem_is_described(tmp_path: Path, text: str, says: str) -> None:
    found = problem_texts(tmp_path, text)
    assert len(found) == 1
    assert says in found[0]


def test_problems_of_tools_are_named(tmp_path: Path) -> None:
    text = """kind = "conversation"
name = "t"
[[tools]]
name = "read"
[[tools]]
name = "read"
[[conversations]]
turns = [{ tool = "read", result = "r" }, { tool = "write", result = "r" }]
"""
    found = "\n".join(problem_texts(tmp_path, text))
    assert "tools[1].name: there are two tools named read" in found
    assert "conversations[0].turns[0]: the first turn must be a message of the user" in found
    assert "conversations[0].turns[1].tool: no [[tools]] table is named write" in found


def test_all_bad_lines_of_a_data_file_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"prompt": "a"}\n{\n{}\n', encoding="utf-8")
    found = problem_texts(tmp_path, 'kind = "jsonl"\nname = "j"\nfile = "d.jsonl"\n')
    assert [problem.split(":")[1] for problem in found] == ["2", "3"]


def test_missing_workload_file_is_a_problem(tmp_path: Path) -> None:
    assert [str(problem) for problem in validate_workload(tmp_path / "none.toml")] == [
        f"{tmp_path / 'none.toml'}: no such file"
    ]


def test_description_of_each_kind(written: Callable[[str], WorkloadFile]) -> None:
    coding = describe_workload(find_workload("coding"))
    assert (coding.kind, coding.prompts, coding.cap, coding.cache) == ("prompts", 64, None, "cold")
    assert coding.types == {"implement": 16, "test": 16, "review": 16, "document": 16}
    assert coding.sample.startswith("Implement a thread-safe LRU cache")
    assert coding.output == "no limit"
    made = describe_workload(find_workload("random-1k-1k"))
    assert (made.kind, made.prompts, made.types) == ("random", None, {})
    assert (made.input, made.output) == ("1024 tokens", "1024 tokens")
    shared = describe_workload(
        written("""
kind = "shared_prefix"
name = "s"
max_tokens = 300
prefix_tokens = 2000
input_tokens = { dist = "uniform", low = 50, high = 90 }
output_tokens = { dist = "lognormal", median = 200, cv = 0.5 }
""")
    )
    assert shared.input == "2000 shared + 50 to 90 tokens"
    assert shared.output == "lognormal, median 200, CV 0.5 tokens"
    assert (shared.cap, shared.cache) == (300, "shared prefix")
    assert describe_workload(find_workload("conversation")).input.endswith("up to 5 turns")


def test_describing_a_broken_workload_raises(written: Callable[[str], WorkloadFile]) -> None:
    with pytest.raises(BadInput, match="no such file"):
        describe_workload(written('kind = "jsonl"\nname = "j"\nfile = "gone.jsonl"\n'))
