"""The card of a session: what is on it, that it fits, and that it can be read at half its width."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
import resvg_py

from swarmtui.model.answer import Answer, AnswerPoint, AnswerSentence, NextStep
from swarmtui.model.base import BadInput
from swarmtui.model.session import Summary
from swarmtui.model.speed_of_light import LevelLimit, SpeedOfLight
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.report.card import HEIGHT, WIDTH, _width, card_svg, large_answer, wrap
from swarmtui.report.environment import environment
from swarmtui.report.images import rasterise
from swarmtui.report.leaderboards import localmaxxing, mlperf_endpoints
from swarmtui.report.markdown import post_markdown
from swarmtui.report.sharing import shared_format
from swarmtui.sessions.private import without_private
from swarmtui.sessions.store import load_session, summarise
from tests.analysis.level_builders import level, session, summary

RECORDED = Path(__file__).parents[1] / "sessions" / "recorded"
NASTY = "<script>alert(1)</script> & \x1b[31m ]]> 'x' \"y\""
HEADLINE = "18 agents (17–19) with a first token within 2 s (80 % sure)"
SVG = "{http://www.w3.org/2000/svg}"


def carried(**fields: object) -> Summary:
    """A search that found 18 agents."""
    levels = [
        level(c, tps=tps, ttft=ttft, stream=tps / c, out_tps_steady_hw=tps / 50)
        for c, tps, ttft in ((1, 168.0, 0.031), (8, 495.0, 0.06), (16, 573.0, 0.11), (18, 573.0, 1.6), (32, 573.0, 3.8))
    ]
    answer = Answer(
        headline=AnswerSentence(code="capacity", sentence=HEADLINE),
        agents=18, low=17, high=19, missed_c=32, slo="ttft_p90=2s", confidence=0.8, best_c=16,
        one_agent=AnswerPoint(c=1, ttft_s=0.031, per_stream_tps=168.0, out_tps=168.0),
        at_capacity=AnswerPoint(c=18, ttft_s=1.0, ttft_p90_s=1.6, per_stream_tps=36.0, out_tps=573.0, half_width=0.02),
        limit=AnswerSentence(code="slots", sentence="at 20 agents the first token took 2.4 s: all 16 slots are taken"),
        next=(NextStep(code="more_slots", sentence="--max-num-seqs 32: about 30 agents (prediction)"),),
    )  # fmt: skip
    limits = tuple(
        LevelLimit(
            c=c,
            batch=c,
            context=0.0,
            bytes_per_step=None,
            flops_per_step=None,
            limit_tps=None,
            expected_tps=400.0 + 40 * c,
        )
        for c in (1, 8, 16, 18, 32)
    )
    server = DiscoveredServer(
        url="", engine="vLLM", version="0.32", models=("org/model-AWQ",), slots=16, flags={"max-num-seqs": "16"}
    )
    made = summary(levels)
    return msgspec.structs.replace(
        made, answer=answer, speed_of_light=SpeedOfLight(levels=limits), servers=(server,),
        gpus=("NVIDIA GeForce RTX 3090, 24 GiB, 350 W",) * 2, **fields,
    )  # fmt: skip


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


def test_first_token_of_the_capacity_is_written_where_not_all_values_fit() -> None:
    values = [text.text for text in ElementTree.fromstring(card_svg(carried())).iter(f"{SVG}text")]
    assert "1.6" in values and "3.8" in values and "0.11" not in values


def test_card_says_the_answer_and_what_was_measured() -> None:
    svg = card_svg(carried())
    said = texts(svg)
    assert said[2] == "18agents" and "(17–19) with a first token" in " ".join(said)
    joined = " ".join(said)
    for part in (
        "quality ok", "Why no more", "all 16 slots are taken", "Try next", "--max-num-seqs 32", "limit of the hardware",
        "2 × NVIDIA GeForce RTX 3090", "vLLM 0.32, 16 slots", "--max-num-seqs 16", "573 tok/s with 18 agents ± 2",
        "1.60 s first token (p90)", "kept", "missed",
    ):  # fmt: skip
        assert part in joined, part
    assert 'class="band throughput"' in svg, "the half-widths are drawn"
    assert "SIMULATED" not in svg


def test_simulated_card_says_so() -> None:
    made = carried()
    simulated = msgspec.structs.replace(made, session=msgspec.structs.replace(made.session, simulated=True))
    assert "SIMULATED" in texts(card_svg(simulated))
    assert b"SIMULATED" in post_markdown(simulated)
    assert b'"simulated": true' in localmaxxing(simulated).content
    assert "no leaderboard should get them" in mlperf_endpoints(simulated).remarks[0]


def test_without_an_slo_the_throughput_is_large() -> None:
    made = summary([level(4, tps=369.0, stream=93.0, ttft=0.06)])
    point = AnswerPoint(c=4, ttft_s=0.06, per_stream_tps=93.0, out_tps=369.0, half_width=0.026)
    answer = Answer(
        headline=AnswerSentence(code="single_level", sentence="369 tok/s with 4 agents, the only level"),
        at_capacity=point, limit=AnswerSentence(code="not_known", sentence="what limits it is not known"),
        quality="doubtful", doubts="the host was busy",
    )  # fmt: skip
    assert large_answer(answer)[:2] == ("369", "tok/s")
    said = " ".join(texts(card_svg(msgspec.structs.replace(made, answer=answer))))
    assert "not sure: the host was busy" in said and "369tok/s" in said
    with pytest.raises(BadInput, match="nothing was measured"):
        card_svg(summary([]))


def test_a_number_in_doubt_says_so_and_has_another_colour() -> None:
    made = summary([level(18, tps=369.0)])
    said = AnswerSentence(code="capacity", sentence="18 agents (17–19) with a first token within 2 s")
    sure = Answer(headline=said, limit=said, agents=18, low=17, high=19)
    doubted = msgspec.structs.replace(sure, quality="doubtful")
    more = AnswerSentence(code="capacity_or_more", sentence="18 agents or more (the host was busy) with a first token")
    busy = msgspec.structs.replace(doubted, headline=more, low=18, high=None, disturbed="the host was busy")
    fewer = msgspec.structs.replace(busy, low=17)
    shown = [large_answer(one).number for one in (sure, doubted, busy, fewer)]
    assert shown == ["18", "18?", "18+", "18?"], "the number has the range of the headline"
    cards = [card_svg(msgspec.structs.replace(made, answer=one)) for one in (sure, doubted, busy)]
    assert [re.search(r'class="figure" style="font-size:[0-9]+px;fill', card) is not None for card in cards] == [
        False,
        True,
        True,
    ]
    assert "or more (the host was busy)" in " ".join(texts(cards[2]))
    assert "(17–19) with a first" in " ".join(texts(cards[1]))


def drawn_sizes(svg: str) -> set[float]:
    """Return the sizes of all texts in pixels of the card."""
    style = re.search(r"<style>(.*?)</style>", svg, re.DOTALL)
    assert style is not None
    rules = dict(re.findall(r"svg (?:text|\.(\w+))\{[^}]*?font-size:([\d.]+)px", style[1]))
    root = ElementTree.fromstring(svg)
    sizes = set()
    for group in root:
        zoom = float(re.sub(r".*scale\(([\d.]+)\).*", r"\1", group.get("transform", "")) or 1)
        for element in group.iter(f"{SVG}text"):
            own = re.search(r"font-size:(\d+)px", element.get("style", ""))
            named = [float(rules[name]) for name in element.get("class", "").split() if name in rules]
            sizes.add(zoom * (float(own[1]) if own else named[-1] if named else float(rules[""])))
    return sizes


def test_texts_are_large_enough_for_half_the_width() -> None:
    assert min(drawn_sizes(card_svg(carried()))) >= 20.0


@pytest.mark.parametrize("long", ["a very long name " * 30, "MWQ " * 100, "m" * 400])
def test_texts_stay_on_the_card(long: str) -> None:
    """However long names and sentences are, nothing is drawn in the margin at the right."""
    made = carried()
    assert made.answer is not None
    session = msgspec.structs.replace(made.session, label=long, workload=long)
    answer = msgspec.structs.replace(
        made.answer, limit=AnswerSentence(code="x", sentence=long), headline=AnswerSentence(code="x", sentence=long),
        quality="doubtful", doubts=long,
    )  # fmt: skip
    svg = card_svg(msgspec.structs.replace(made, session=session, answer=answer, gpus=(long,)))
    whole = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    margin = f'width="40" height="{HEIGHT}" viewBox="{WIDTH - 40} 0 40 {HEIGHT}"'
    assert whole in svg
    without_text = re.sub("<text.*?</text>", "", svg)
    assert rasterise(svg.replace(whole, margin), 1) == rasterise(without_text.replace(whole, margin), 1)


def test_untrusted_text_is_escaped() -> None:
    made = carried()
    session = msgspec.structs.replace(made.session, label=NASTY, workload=NASTY)
    found = msgspec.structs.replace(made, session=session, gpus=(NASTY,))
    svg = card_svg(found)
    assert {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(svg).iter()} <= {
        "svg", "style", "rect", "g", "path", "circle", "text", "tspan", "title", "clipPath",
    }  # fmt: skip
    assert "\x1b" not in svg and b"<script>" not in post_markdown(found) and b"\x1b" not in post_markdown(found)


def test_png_of_a_session_on_real_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its size, and looks the same on a machine without fonts."""
    found = without_private(summarise(load_session(RECORDED, "last"))).summary
    image = shared_format("card.png").render(found, "")
    assert image.startswith(b"\x89PNG") and struct.unpack(">II", image[16:24]) == (WIDTH, HEIGHT) == (1200, 675)
    rasterise = resvg_py.svg_to_bytes
    monkeypatch.setattr(resvg_py, "svg_to_bytes", lambda **options: rasterise(**options, skip_system_fonts=True))
    assert shared_format("card.png").render(found, "") == image
    assert "H200" in environment(found).hardware


def test_suffix_decides_what_is_written() -> None:
    assert shared_format("a.b.swarm.json.gz").attached
    with pytest.raises(BadInput, match=r"must end with one of \.png, \.svg, \.md, \.swarm\.json\.gz"):
        shared_format("a.gz")


def test_post_has_answer_levels_and_environment() -> None:
    text = post_markdown(carried(), "box.swarm.json.gz").decode()
    assert text.startswith("**18 agents (17–19) with a first token within 2 s (80 % sure)**")
    assert "- Why no more: at 20 agents" in text and "- Flags: --max-num-seqs 16" in text
    assert re.search(r"\|\s*C \|.*tok/s", text) and "▸18" in text
    assert "swarmtui compare box.swarm.json.gz last" in text


def test_mlperf_points_follow_their_definitions() -> None:
    made = carried()
    spread = msgspec.structs.replace(made.levels[1].tpot_s, n=64, mean=0.016, p90=0.02)
    first = msgspec.structs.replace(made.levels[1].ttft_s, n=64, p90=0.12)
    levels = (made.levels[0], msgspec.structs.replace(made.levels[1], tpot_s=spread, ttft_s=first))
    file = mlperf_endpoints(msgspec.structs.replace(made, levels=levels))
    one, eight = msgspec.json.decode(file.content)["points"]
    assert eight == {
        "concurrency": 8, "system_tps": 495.0, "tps_per_user": 50.0, "tpot_p90_ms": 20.0, "ttft_p90_ms": 120.0,
        "requests": 16,
    }  # fmt: skip
    assert one["tps_per_user"] is None and file.remarks == ("p90 needs 29 answers, so it is null at C=1",)


def test_localmaxxing_payload_has_the_fields_of_its_api() -> None:
    made = carried()
    endpoints = tuple(msgspec.structs.replace(one, model="org/model-AWQ") for one in made.session.endpoints)
    made = msgspec.structs.replace(made, session=msgspec.structs.replace(made.session, endpoints=endpoints))
    file = localmaxxing(made)
    payload = msgspec.json.decode(file.content)
    assert payload["hfId"] == "org/model-AWQ" and payload["engineName"] == "vllm"
    assert payload["hardware"]["hwClass"] == "DISCRETE_GPU" and payload["hardware"]["gpuCount"] == 2
    assert (payload["tokSOut"], payload["ttftMs"], payload["batchSize"]) == (168.0, 31.0, 1)
    assert payload["engineFlags"] == {"concurrency": 1, "commandSnippet": "--max-num-seqs 16"}
    assert payload["quantization"] is None and any("quantization" in remark for remark in file.remarks)
    assert msgspec.json.decode(localmaxxing(made, 16).content)["tokSOut"] == 573.0
    with pytest.raises(BadInput, match="measured are 1, 8, 16, 18, 32"):
        localmaxxing(made, 4)


@pytest.mark.parametrize("is_simulated", [True, False])
def test_a_long_doubt_is_beside_what_is_left_of_it(is_simulated: bool) -> None:
    doubted = carried(session=session(simulated=is_simulated, label="wide" * 30))
    assert doubted.answer is not None
    answer = msgspec.structs.replace(doubted.answer, quality="doubtful", doubts="other programs were busy, " * 9)
    root = ElementTree.fromstring(card_svg(msgspec.structs.replace(doubted, answer=answer)))
    (doubt,) = (text for text in root.iter(f"{SVG}text") if text.get("text-anchor") == "end" and text.get("y") == "50")
    badges = [float(rect.get("x", 0)) + float(rect.get("width", 0)) for rect in root.iter(f"{SVG}rect")][1:]
    left = float(doubt.get("x", 0)) - _width(doubt.text or "", 22)
    assert left > max([*badges, 48 + 350]) + 10


def test_lines_are_broken_at_blanks() -> None:
    assert wrap("one two three", 66, 22, 3) == ["one", "two", "three"]
    assert wrap("one two three four", 85, 22, 2) == ["one two", "three f…"]
    assert wrap("", 80, 22, 2) == []
