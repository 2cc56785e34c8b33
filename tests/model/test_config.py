"""config.toml as people write it: endpoints by name, defaults, and no key in it."""

from __future__ import annotations

import pytest

from swarmtui.model.config import EndpointConfig, find_endpoint, merge_endpoints, parse_config
from swarmtui.model.schema import BadInput

CONFIG = """
[endpoints.box]
url = "https://box.lan:8000"
model = "qwen3"
api_key_env = "BOX_KEY"
headers = { X-Team = "blue" }
ca_file = "ca.pem"
server_flags = "--max-num-seqs 4"
metrics_urls = ["http://box.lan:9000/metrics"]

[defaults]
endpoint = "box"
levels = [1, 2]
requests = 4
warmup = "none"
"""


def test_an_endpoint_and_defaults() -> None:
    config = parse_config(CONFIG, "c.toml")
    box = config.endpoints["box"]
    assert (box.url, box.api_key_env, box.headers) == ("https://box.lan:8000", "BOX_KEY", {"X-Team": "blue"})
    assert config.defaults.options() == {"endpoints": ("box",), "levels": "1,2", "requests": "4", "warmup": "none"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('api_key = "sk-123"', "c.toml:5: endpoints.e.api_key: a key does not belong in a file: name the variable"),
        ('key = "sk-123"', "endpoints.e.key: a key does not belong in a file"),
        ('api_key_env = "sk-123"', "endpoints.e.api_key_env: expected the name of a variable; a key does not belong"),
        ('headers = {Authorization = "Bearer x"}', "endpoints.e.headers.Authorization: a key does not belong"),
        ('headers = {"X-Api-Key" = "x"}', "endpoints.e.headers.X-Api-Key: a key does not belong"),
        ('modell = "m"', "c.toml:5: endpoints.e.modell: unknown key, did you mean model?"),
        ("insecure = 1", "endpoints.e.insecure: expected true or false, got a whole number"),
    ],
)
def test_what_may_not_stand_there(line: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_config(f'[endpoints.d]\nurl = "h:1"\n[endpoints.e]\nurl = "http://h:1"\n{line}\n', "c.toml")
    assert says in str(caught.value) and "123" not in str(caught.value)


def test_a_url_that_is_none_and_a_default_that_is_none() -> None:
    with pytest.raises(BadInput, match=r"c\.toml: endpoints\.e\.url: ftp:// is not http"):
        parse_config('[endpoints.e]\nurl = "ftp://h"\n', "c.toml")
    with pytest.raises(BadInput, match=r"c\.toml:2: defaults\.level: unknown key, did you mean levels\?"):
        parse_config("[defaults]\nlevel = [1]\n", "c.toml")


def test_a_name_an_address_and_a_name_that_nobody_has() -> None:
    known = {"box": EndpointConfig(url="http://10.0.0.1:8000", model="m")}
    assert find_endpoint("box", known, "c.toml").model == "m"
    for text in ("127.0.0.1:8000", "http://box", "sim:moe-tp1", "localhost", "[::1]:8000"):
        assert find_endpoint(text, known, "c.toml") == EndpointConfig(url=text)
    with pytest.raises(BadInput, match=r"no endpoint is called 'bxo' in c\.toml \(there are box\); did you mean box\?"):
        find_endpoint("bxo", known, "c.toml")


def test_a_key_goes_to_no_endpoint_that_it_was_not_given_for() -> None:
    mine = EndpointConfig(url="http://a:1", api_key_env="MINE", metrics_urls=("http://a:2",))
    with pytest.raises(BadInput, match="http://a:1 and http://b:1 differ in api_key_env"):
        merge_endpoints([mine, EndpointConfig(url="http://b:1")])
    other = EndpointConfig(url="http://b:1", api_key_env="MINE", metrics_urls=("http://b:2",))
    assert merge_endpoints([mine, other]).metrics_urls == ("http://a:2", "http://b:2")
