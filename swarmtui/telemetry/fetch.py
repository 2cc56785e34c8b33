"""Fetch pages from servers, bounded in time and size, without raising."""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import httpx2

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
        headers: dict[str, str] | None = None,
        *,
        ca_file: str | None = None,
        insecure: bool = False,
        timeout_s: float = TIMEOUT_S,
        retry_s: float = 1.0,
    ) -> None:
        self._urls = tuple(urls)
        self._timeout_s, self._retry_s = timeout_s, retry_s
        # Only for https: loading certificates takes longer than everything else here.
        verified = any(url.startswith("https:") for url in urls) and not insecure
        context = ssl.create_default_context(cafile=ca_file) if verified else False
        self._client = httpx2.Client(headers=headers or {}, trust_env=False, verify=context, timeout=timeout_s)
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
        deadline = time.monotonic() + self._timeout_s
        body = bytearray()
        try:
            with self._client.stream("GET", url) as response:
                if response.status_code in (401, 403):
                    return "", f"HTTP {response.status_code}, it needs an API key: --api-key-env or --header"
                if response.status_code != 200:
                    return "", f"HTTP {response.status_code}"
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > MAX_BYTES:
                        return "", f"more than {MAX_BYTES >> 20} MB, not read"
                    if time.monotonic() > deadline:
                        return "", f"not finished within {self._timeout_s:g} s"
        except httpx2.TimeoutException:
            return "", f"no answer within {self._timeout_s:g} s"
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return "", str(error) or type(error).__name__
        return body.decode(errors="replace"), ""
