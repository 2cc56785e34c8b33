"""Fetch metrics pages, bounded in time and size, without raising, and parse selected samples of a Prometheus page."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple

from swarmtui.http_client import HttpClient, RequestFailed
from swarmtui.model.endpoint import show_url

TIMEOUT_S = 2.0
MAX_BYTES = 4 << 20
_MAX_RETRY_S = 5.0

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLAIN = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{.*\})?")


class MetricSample(NamedTuple):
    """One sample. `labels` are cached and shared between pages: do not modify them."""

    name: str
    labels: dict[str, str]
    value: float


def parse_samples(text: str, keep: Callable[[str], bool]) -> list[MetricSample] | None:
    """Return the finite samples whose names are to `keep`; None if such a line is malformed.

    A page has hundreds of lines and is read every second: other lines are not parsed, and names and labels are
    parsed only once.
    """
    found = []
    try:
        for line in text.splitlines():
            name = _NAME.match(line)
            if name and keep(name.group()):
                series, _, value = line.rstrip().rpartition(" ")
                plain = _PLAIN.fullmatch(series)
                sample = MetricSample(*_parse_series(series.rstrip()), float(value)) if plain else _parse(line)
                # The name of a malformed series, such as `name={}`, is longer than the match.
                if math.isfinite(sample.value) and keep(sample.name):
                    found.append(sample)
    except (ValueError, IndexError, KeyError):
        return None
    return found


@lru_cache(maxsize=8192)
def _parse_series(series: str) -> tuple[str, dict[str, str]]:
    sample = _parse(f"{series} 0")
    return sample.name, sample.labels


def _parse(line: str) -> MetricSample:
    """Parse one line with the library, which also accepts a timestamp after the value."""
    from prometheus_client.parser import text_string_to_metric_families

    for family in text_string_to_metric_families(f"{line}\n"):
        for sample in family.samples:
            return MetricSample(sample.name, sample.labels, sample.value)
    raise ValueError("no sample in the line")


class FetchResult(NamedTuple):
    """The body of `url`, which is redacted; it is empty if there is a `problem`."""

    url: str
    body: str
    problem: str


class Fetcher:
    """Fetch the same URLs repeatedly. One that failed is skipped for `retry_s`, then twice that, up to 5 s."""

    def __init__(
        self,
        urls: Sequence[str],
        client: HttpClient | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        retry_s: float = 1.0,
    ) -> None:
        self.urls = tuple(urls)
        self._timeout_s, self._retry_s = timeout_s, retry_s
        self._client = client or HttpClient()
        self._pool = ThreadPoolExecutor(min(len(urls), 16)) if len(urls) > 1 else None
        self._failed: dict[str, tuple[float, float, str]] = {}

    def fetch(self) -> list[FetchResult]:
        """Return one result per URL, in order; they are fetched concurrently."""
        return list(map(self._fetch, self.urls) if self._pool is None else self._pool.map(self._fetch, self.urls))

    def close(self) -> None:
        self._client.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _fetch(self, url: str) -> FetchResult:
        until, wait_s, problem = self._failed.get(url, (0.0, self._retry_s, ""))
        if time.monotonic() < until:
            return FetchResult(show_url(url), "", problem)
        body, problem = self._get(url)
        if problem:
            self._failed[url] = (time.monotonic() + wait_s, min(2 * wait_s, _MAX_RETRY_S), problem)
        else:
            self._failed.pop(url, None)
        return FetchResult(show_url(url), body, problem)

    def _get(self, url: str) -> tuple[str, str]:
        try:
            reply = self._client.get(url, self._timeout_s, max_bytes=MAX_BYTES)
        except RequestFailed as error:
            return "", str(error)
        if reply.status in (401, 403):
            return "", f"HTTP {reply.status}, it needs an API key: --api-key-env or --header"
        return ("", f"HTTP {reply.status}") if reply.status != 200 else (reply.text, "")
