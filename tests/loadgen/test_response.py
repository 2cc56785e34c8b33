"""What a response collects from its chunks."""

from __future__ import annotations

import pytest

from swarmtui.loadgen.response import Response


@pytest.fixture
def response() -> Response:
    found = Response()
    found.add_output(5, "abc", None, "")
    return found


def test_chunks_that_were_read_together_are_counted(response: Response) -> None:
    """Also with the chunk before them."""
    response.add_contents([5, 5, 6, 7, 7], ["d", "e", "f", "g", "h"])
    assert response.coalesced_chunks == 3
    response.add_contents([8], ["i"])
    response.add_output(8, "j", None, "")
    assert (response.coalesced_chunks, len(response.times)) == (4, 8)


@pytest.mark.parametrize(("size", "tail"), [(1, "f"), (3, "def"), (4, "cdef"), (6, "abcdef"), (9, "xyzabcdef")])
def test_tail_is_the_end_of_reasoning_and_content(response: Response, size: int, tail: str) -> None:
    response.add_contents([6], ["def"])
    response.add_output(7, None, "wxyz", "")
    assert response.tail(size) == tail


def test_tail_of_a_short_answer_is_all_of_it(response: Response) -> None:
    assert response.tail(100) == "abc"
