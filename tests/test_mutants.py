"""Every known fault can still be applied: its text is in the code, and its tests exist."""

from __future__ import annotations

from collections import Counter

from tests.mutants import ROOT, read_mutants


def test_the_text_of_every_mutant_is_in_its_file_once() -> None:
    found = {m.name: (ROOT / m.file).read_text(encoding="utf-8").count(m.old) for m in read_mutants()}
    assert {name: count for name, count in found.items() if count != 1} == {}


def test_the_tests_of_every_mutant_exist() -> None:
    named = {test.partition("[")[0] for mutant in read_mutants() for test in mutant.tests}
    missing = []
    for test in sorted(named):
        file, _, name = test.partition("::")
        path = ROOT / file
        if not path.is_file() or (name and f"def {name}(" not in path.read_text(encoding="utf-8")):
            missing.append(test)
    assert missing == []


def test_a_name_of_a_mutant_is_used_once() -> None:
    assert [name for name, count in Counter(m.name for m in read_mutants()).items() if count > 1] == []
