"""Parsing of config.toml: named endpoints, defaults, and no secrets."""

from __future__ import annotations

import pytest

from swarmtui.client.config_file import find_endpoint, merge_endpoints, parse_config
from swarmtui.model.base import BadInput
from swarmtui.model.config import EndpointConfig

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
canaries = "2%"
"""


def test_config_has_endpoints_and_defaults() -> None:
    config = parse_config(CONFIG, "c.toml")
    box = config.endpoints["box"]
    assert (box.url, box.api_key_env, box.headers) == ("https://box.lan:8000", "BOX_KEY", {"X-Team": "blue"})
    options = {"endpoints": ("box",), "levels": "1,2", "requests": "4", "warmup": "none", "canaries": "2%"}
    assert config.defaults.options() == options


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('api_key = "sk-123"', "c.toml:5: endpoints.e.api_key: do not store a key in a file; set api_key_env"),
        ('key = "sk-123"', "endpoints.e.key: do not store a key in a file"),
        (
            'api_key_env = "sk-123"',
            "endpoints.e.api_key_env: expected the name of an environment variable; do not store",
        ),
        ('headers = {Authorization = "Bearer x"}', "endpoints.e.headers.Authorization: do not store a key"),
        ('headers = {"X-Api-Key" = "x"}', "endpoints.e.headers.X-Api-Key: do not store a key"),
        ('modell = "m"', "c.toml:5: endpoints.e.modell: unknown key, did you mean model?"),
        ("insecure = 1", "endpoints.e.insecure: expected true or false, got a whole number"),
    ],
)
def test_secret_or_wrong_value_is_refused_with_its_key(line: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_config(f'[endpoints.d]\nurl = "h:1"\n[endpoints.e]\nurl = "http://h:1"\n{line}\n', "c.toml")
    assert says in str(caught.value) and "123" not in str(caught.value)


def test_bad_url_and_unknown_default_are_refused() -> None:
    with pytest.raises(BadInput, match=r"c\.toml: endpoints\.e\.url: unsupported scheme ftp://"):
        parse_config('[endpoints.e]\nurl = "ftp://h"\n', "c.toml")
    with pytest.raises(BadInput, match=r"c\.toml:2: defaults\.level: unknown key, did you mean levels\?"):
        parse_config("[defaults]\nlevel = [1]\n", "c.toml")


def test_endpoint_is_found_by_name_or_address() -> None:
    known = {"box": EndpointConfig(url="http://10.0.0.1:8000", model="m")}
    assert find_endpoint("box", known, "c.toml").model == "m"
    for text in ("127.0.0.1:8000", "http://box", "sim:moe-tp1", "localhost", "[::1]:8000"):
        assert find_endpoint(text, known, "c.toml") == EndpointConfig(url=text)
    with pytest.raises(BadInput, match=r"no endpoint named 'bxo' in c\.toml \(configured: box\); did you mean box\?"):
        find_endpoint("bxo", known, "c.toml")
    with pytest.raises(BadInput, match=r"write a port of this host as http://127\.0\.0\.1:8080"):
        find_endpoint("8080", known, "c.toml")
    with pytest.raises(BadInput, match="write a host as http://gpu-1"):
        find_endpoint("gpu-1", known, "c.toml")


def test_endpoints_with_different_keys_cannot_be_merged() -> None:
    mine = EndpointConfig(url="http://a:1", api_key_env="MINE", metrics_urls=("http://a:2",))
    with pytest.raises(BadInput, match="http://a:1 and http://b:1 differ in api_key_env"):
        merge_endpoints([mine, EndpointConfig(url="http://b:1")])
    other = EndpointConfig(url="http://b:1", api_key_env="MINE", metrics_urls=("http://b:2",))
    assert merge_endpoints([mine, other]).metrics_urls == ("http://a:2", "http://b:2")
