"""Errors in user input name the file, line and key, and what was expected."""

from __future__ import annotations

import pytest

from swarmtui.model.base import BadInput, InputStruct, Stored
from swarmtui.model.parsing import parse_json, parse_toml
from swarmtui.model.workload import Conversation, Prompts, RandomText
from swarmtui.prompts.library import parse_workload


class Part(InputStruct, frozen=True, kw_only=True):
    max_tokens: int = 0
    name: str = ""
    on: bool = False


class Whole(InputStruct, frozen=True, kw_only=True):
    title: str
    part: Part = Part()
    parts: tuple[Part, ...] = ()
    size: int | str | None = None


class Kept(Stored, frozen=True, kw_only=True):
    title: str


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('title = "a"\nmax_token = 1\n', "f.toml:2: max_token: unknown key"),
        ('title = "a"\ntitel = "b"\n', "f.toml:2: titel: unknown key, did you mean title?"),
        ('title = "a"\n\n[part]\nmax_token = 1\n', "f.toml:4: part.max_token: unknown key, did you mean max_tokens?"),
        (
            'title = "a"\n[[parts]]\nname = "x"\n[[parts]]\nnmae = "y"\n',
            "f.toml:5: parts[1].nmae: unknown key, did you mean name?",
        ),
        ('title = "a"\npart.max_tokens = "many"\n', "f.toml:2: part.max_tokens: expected a whole number, got text"),
        ('title = "a"\n[part]\non = 1\n', "f.toml:3: part.on: expected true or false, got a whole number"),
        ('title = "a"\nparts = 3\n', "f.toml:2: parts: expected a list, got a whole number"),
        ('title = "a"\nsize = []\n', "f.toml:2: size: expected a whole number or text, got a list"),
        ("[part]\n", "f.toml: the key title is missing"),
        ("title = 1\n", "f.toml:1: title: expected text, got a whole number"),
    ],
)
def test_wrong_key_or_value_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_toml(text, Whole, "f.toml")
    assert str(caught.value) == message


def test_error_has_source_key_and_line() -> None:
    with pytest.raises(BadInput) as caught:
        parse_toml('title = "a"\n[part]\nmax_token = 1\n', Whole, "f.toml")
    error = caught.value
    assert (error.source, error.line, error.key) == ("f.toml", 3, "part.max_token")
    assert error.problem == "unknown key, did you mean max_tokens?"


def test_invalid_toml_is_reported_with_its_line() -> None:
    with pytest.raises(BadInput, match=r"^f\.toml:2: not valid TOML: ") as caught:
        parse_toml('title = "a"\nname = \n', Whole, "f.toml")
    assert caught.value.line == 2


def test_invalid_json_is_reported() -> None:
    with pytest.raises(BadInput, match=r"^f\.json:1: not valid JSON: "):
        parse_json('{"title": ', Kept, "f.json")


def test_json_is_validated_like_toml() -> None:
    with pytest.raises(BadInput, match=r"^f\.json: titel: unknown key, did you mean title\?$"):
        parse_json('{"title": "a", "titel": "b"}', Whole, "f.json")


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert parse_json('{"title": "a", "later": 1}', Kept, "f.json") == Kept(title="a")


def test_workload_typo_gets_a_suggestion() -> None:
    text = 'name = "w"\nkind = "random"\ninput_tokens = 8\noutput_tokens = 8\nmax_token = 5\n'
    with pytest.raises(BadInput) as caught:
        parse_workload(text, "w.toml")
    assert str(caught.value) == "w.toml:5: max_token: unknown key, did you mean max_tokens?"


RANDOM = 'kind = "random"\ninput_tokens = 8\noutput_tokens = 8\n'
KINDS = "conversation, dag, jsonl, mixed, prompts, random, shared_prefix, sharegpt, trace"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind="prompt"', f"w.toml:2: kind: invalid value 'prompt'; expected one of {KINDS}; did you mean prompts?"),
        ('kind = "poetry"\n', f"w.toml:2: kind: invalid value 'poetry'; expected one of {KINDS}"),
        ("", f"w.toml: the key kind is missing; expected one of {KINDS}"),
        (
            'kind = "random"\noutput_tokens = 8\ninput_tokens = {dist = "unifrm", low = 1, high = 2}\n',
            "w.toml:4: input_tokens.dist: invalid value 'unifrm'; "
            "expected one of by_level, cycle, fixed, lognormal, normal, uniform; did you mean uniform?",
        ),
        (
            f'{RANDOM}cache = "warmed"\n',
            "w.toml:5: cache: invalid value 'warmed'; expected one of cold, shared, warm; did you mean warm?",
        ),
        (
            f'{RANDOM}[load]\nmode = "opne"\n',
            "w.toml:6: load.mode: invalid value 'opne'; "
            "expected one of barrier, closed, dag, mixed, open, ramp, sessions, swarm; did you mean open?",
        ),
        (
            f'{RANDOM}[load]\nmode = "open"\nrate = 1\narrival = "poison"\n',
            "w.toml:8: load.arrival: invalid value 'poison'; "
            "expected one of constant, gamma, poisson, recorded; did you mean poisson?",
        ),
    ],
)
def test_invalid_choice_lists_the_choices_and_the_closest(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_workload('name = "w"\n' + text, "w.toml")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('kind = "random"\ninput_tokens = 0\noutput_tokens = 8\n', "input_tokens"),
        ('kind = "random"\ninput_tokens = {dist = "uniform", low = 9, high = 3}\noutput_tokens = 8\n', "input_tokens"),
        (
            'kind = "random"\ninput_tokens = 8\n'
            'output_tokens = {dist = "normal", mean = 5, sd = 1, low = 9, high = 3}\n',
            "output_tokens",
        ),
        (
            'kind = "random"\ninput_tokens = 8\n'
            'output_tokens = {dist = "by_level", tokens = 9, shares = {"2" = [1.0]}}\n',
            "output_tokens.shares",
        ),
        ('kind = "prompts"\n', "prompts"),
        ('kind = "prompts"\nfile = "x"\n[[prompts]]\ntext = "y"\n', "prompts"),
        ('kind = "conversation"\nconversations = []\n', "conversations"),
        ('kind = "poetry"\n', "kind"),
        ('temperature = -1.0\nkind = "jsonl"\nfile = "x"\n', "temperature"),
    ],
)
def test_inconsistent_workload_is_refused_with_its_key(text: str, key: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_workload('name = "w"\n' + text, "w.toml")
    assert caught.value.key == key
    assert caught.value.source == "w.toml"


def test_workload_kinds() -> None:
    random = parse_workload('name = "r"\nkind = "random"\ninput_tokens = 8\noutput_tokens = 9\n', "w")
    assert isinstance(random, RandomText)
    assert (random.input_tokens, random.output_tokens, random.cache) == (8, 9, "cold")
    prompts = parse_workload('name = "p"\nkind = "prompts"\n[[prompts]]\ntext = "hi"\n', "w")
    assert isinstance(prompts, Prompts)
    assert prompts.prompts[0].text == "hi"
    talk = parse_workload('name = "c"\nkind = "conversation"\n[[conversations]]\nturns = ["a", "b"]\n', "w")
    assert isinstance(talk, Conversation)
    assert talk.conversations[0].turns == ("a", "b")
