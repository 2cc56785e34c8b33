"""The table of the fault matrix; `python -m tests.faults.matrix` runs it."""

from __future__ import annotations

from swarmtui.model.endpoint import PATHS
from tests.faults.hostile import CASES
from tests.faults.matrix import rows


def test_table_has_each_case_in_each_api_and_the_tests_of_a_group() -> None:
    found = rows(["answers", "disk"])
    assert len({(row.group, row.name) for row in found}) == len(found)
    assert sum(row.group == "answers" for row in found) == len(CASES) * len(PATHS)
    assert any("full_disk" in row.name for row in found)
    assert [row.group for row in rows(["soak"])] == ["soak"]
