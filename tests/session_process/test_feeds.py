"""Where the tasks of a stretch come from."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from swarmtui.model.plan import Plan, Requests
from swarmtui.model.record import Record
from swarmtui.model.workload import Graph, Task, read_workload
from swarmtui.prompts.generator import Source, open_source
from swarmtui.prompts.library import Found, find
from swarmtui.session_process.layout import Layout
from swarmtui.session_process.load_modes import Again, Arriving, Asker, Beside, Feed, Fresh, Waiting, Warmups

MIXED = """
kind = "mixed"
name = "m"
primary = { turns = ["first", "then"] }
side = [{ text = "one", type = "s1" }, { text = "two", type = "s2" }]
"""
GRAPH = """
kind = "dag"
name = "g"
[[tasks]]
id = "plan"
text = "make a plan"
[[tasks]]
id = "work"
text = "do {plan} now"
after = ["plan"]
copies = 2
[[tasks]]
id = "sum"
text = "of: {work}"
after = ["work"]
"""


def source(text: str) -> Source:
    found = Found(workload=read_workload(text, "made"), source="made", base=Path(), text=text)
    return open_source(found, seed=1, calibration=None)


def graph() -> tuple[Waiting, Graph]:
    opened = source(GRAPH)
    assert isinstance(opened.workload, Graph)
    return Waiting(Asker(opened), 4, opened.workload), opened.workload


def all_of(feed: Feed) -> list[Task]:
    return list(iter(feed.next, None))


def answer(task: Task, text: str = "done", error: str | None = None) -> Record:
    return Record(task=task.id, text=text, error=error)


def asked(task: Task) -> str:
    """Without the nonce, which stands before the first message."""
    text = task.messages[-1].content
    return text if len(task.messages) > 1 else text.partition("] ")[2]


def test_the_same_content_again_has_a_nonce_of_its_own() -> None:
    asker = Asker(open_source(find("coding"), seed=1, calibration=None))
    feed = Fresh(asker, 3, 3)
    batch = all_of(feed)
    again = all_of(Again(asker, 3, feed.contents))
    assert list(map(asked, batch)) == list(map(asked, again))
    assert len({task.messages for task in batch + again}) == 6
    assert [task.id for task in batch + again] == list(range(6))


def test_neither_a_warm_up_nor_a_baseline_uses_up_a_prompt() -> None:
    opened = open_source(find("s0-swarm-coding"), seed=1, calibration=None)
    asker = Asker(opened)
    seen: list[str] = []
    for c in (1, 2, 3, 4, 4, 3, 2, 1):
        all_of(Warmups(asker, 2))
        feed = Fresh(asker, c, c)
        seen += map(asked, all_of(feed))
        all_of(Again(asker, c, feed.contents))
    assert len(seen) == len(set(seen)) == 20


def test_side_tasks_once() -> None:
    feed = Beside(Asker(source(MIXED)), 3, loop=False)
    tasks = all_of(feed)
    assert [task.type for task in tasks] == ["primary", "s1", "s2"]
    assert tasks[0].followups == ("then",)
    assert not feed.more and feed.of == 3


def test_side_tasks_begin_again_until_the_primary_one_has_ended() -> None:
    feed = Beside(Asker(source(MIXED)), 3, loop=True)
    primary, one, two = all_of(feed)
    assert feed.more and feed.of is None
    feed.over(one, answer(one))
    (again,) = all_of(feed)
    assert again.type == "s1" and again.id not in (primary.id, one.id, two.id)
    feed.over(primary, answer(primary))
    feed.over(two, answer(two))
    assert all_of(feed) == [] and not feed.more


def test_tasks_of_a_graph_wait_and_quote() -> None:
    feed, _ = graph()
    (plan,) = all_of(feed)
    assert plan.with_text and feed.more
    feed.over(plan, answer(plan, "the plan"))
    first, second = all_of(feed)
    assert asked(first) == asked(second) == "do the plan now"
    feed.over(first, answer(first, "A"))
    assert all_of(feed) == []
    feed.over(second, answer(second, "B"))
    (last,) = all_of(feed)
    assert asked(last) == "of: A\n\nB" and not last.with_text
    assert not feed.more and feed.of == 4


def test_tasks_behind_a_failed_one_are_not_asked() -> None:
    feed, _ = graph()
    (plan,) = all_of(feed)
    feed.over(plan, answer(plan, error="http_500"))
    assert all_of(feed) == [] and not feed.more
    assert (feed.lost, feed.of) == (3, 1)


def test_a_failed_copy_takes_those_behind_it_along_and_not_its_brothers() -> None:
    feed, _ = graph()
    (plan,) = all_of(feed)
    feed.over(plan, answer(plan))
    first, second = all_of(feed)
    feed.over(first, answer(first, error="reset"))
    feed.over(second, answer(second))
    assert all_of(feed) == [] and not feed.more
    assert (feed.lost, feed.of) == (1, 3)


def test_arrivals_are_given_a_little_ahead_with_their_time() -> None:
    asker = Asker(open_source(find("chat"), seed=1, calibration=None))
    feed = Arriving(asker, 8, (0.25 * n for n in count(1)), None, None)
    given = [task.at_ns for task in all_of(feed)]
    assert given[:4] == [450_000_000, 700_000_000, 950_000_000, 1_200_000_000]
    assert len(given) <= 5 and feed.more


def test_arrivals_end_by_number_or_by_time() -> None:
    asker = Asker(open_source(find("chat"), seed=1, calibration=None))
    by_number = Arriving(asker, 8, (0.01 * n for n in count(1)), 3, None)
    assert len(all_of(by_number)) == 3 and not by_number.more
    by_time = Arriving(asker, 8, (0.1 * n for n in count(1)), None, 0.45)
    assert len(all_of(by_time)) == 4 and not by_time.more


def test_rotated_levels_are_a_latin_square() -> None:
    asker = Asker(open_source(find("chat"), seed=1, calibration=None))
    order = [(c, run) for (c, _), run in Layout(Plan(rotate=True), asker).order((1, 2, 4), 3)]
    assert order == [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (1, 2), (4, 3), (1, 3), (2, 3)]
    plain = Layout(Plan(), asker).order((1, 2), 2)
    assert plain == [((1, None), 1), ((1, None), 2), ((2, None), 1), ((2, None), 2)]


def test_rates_of_an_open_loop_are_its_levels() -> None:
    asker = Asker(open_source(find("chat"), seed=1, calibration=None))
    plan = Plan(
        load="open", levels=(512,), rates=(20.0, 40.0), requests=Requests(count=3, per_stream=False), rotate=True
    )
    layout = Layout(plan, asker)
    slow, fast = (512, 20.0), (512, 40.0)
    assert layout.order(plan.levels, 2) == [(slow, 1), (fast, 1), (fast, 2), (slow, 2)]
    times = {place: [task.at_ns for task in all_of(layout.feed(place, 1))] for place in (slow, fast)}
    assert len(times[slow]) == len(times[fast]) == 3
    assert all(a and b and a > b for a, b in zip(times[slow], times[fast], strict=True))
