"""Fetch pages from servers, bounded in time and size, without raising."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from swarmtui.http_client import HttpClient, RequestFailed

TIMEOUT_S = 2.0
MAX_BYTES = 4 << 20
_MAX_RETRY_S = 5.0


class FetchResult(NamedTuple):
    """The body of `url`; it is empty if there is a `problem`."""

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
        self._urls = tuple(urls)
        self._timeout_s, self._retry_s = timeout_s, retry_s
        self._client = client or HttpClient()
        self._pool = ThreadPoolExecutor(min(len(self._urls), 16)) if len(self._urls) > 1 else None
        self._failed: dict[str, tuple[float, float, str]] = {}

    def fetch(self) -> list[FetchResult]:
        """Return one result per URL, in order; they are fetched concurrently."""
        return list(map(self._fetch, self._urls) if self._pool is None else self._pool.map(self._fetch, self._urls))

    def close(self) -> None:
        self._client.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _fetch(self, url: str) -> FetchResult:
        until, wait_s, problem = self._failed.get(url, (0.0, self._retry_s, ""))
        if time.monotonic() < until:
            return FetchResult(url, "", problem)
        body, problem = self._get(url)
        if problem:
            self._failed[url] = (time.monotonic() + wait_s, min(2 * wait_s, _MAX_RETRY_S), problem)
        else:
            self._failed.pop(url, None)
        return FetchResult(url, body, problem)

    def _get(self, url: str) -> tuple[str, str]:
        try:
            reply = self._client.get(url, self._timeout_s, max_bytes=MAX_BYTES)
        except RequestFailed as error:
            return "", str(error)
        if reply.status in (401, 403):
            return "", f"HTTP {reply.status}, it needs an API key: --api-key-env or --header"
        return ("", f"HTTP {reply.status}") if reply.status != 200 else (reply.text, "")
