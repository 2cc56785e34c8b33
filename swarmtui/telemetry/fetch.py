"""Texts from servers, fetched so that nothing a server does can disturb us: bounded in time and size, never raising."""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import httpx2

TIMEOUT_S = 2.0
MOST_BYTES = 4 << 20
_LONGEST_WAIT_S = 5.0


class Answer(NamedTuple):
    """What came from `url`; where `problem` says something, the body is empty."""

    url: str
    body: str
    problem: str


class Fetcher:
    """The same few URLs again and again. One that failed is left alone for `retry_s`, then twice that, up to 5 s."""

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
        # Made only where it is needed: certificates take longer to load than everything else here.
        verified = any(url.startswith("https:") for url in urls) and not insecure
        context = ssl.create_default_context(cafile=ca_file) if verified else False
        self._client = httpx2.Client(headers=headers or {}, trust_env=False, verify=context, timeout=timeout_s)
        self._pool = ThreadPoolExecutor(min(len(self._urls), 16)) if len(self._urls) > 1 else None
        self._resting: dict[str, tuple[float, float, str]] = {}

    def fetch(self) -> list[Answer]:
        """One answer for each URL, in their order; several are asked at once."""
        return list(map(self._one, self._urls) if self._pool is None else self._pool.map(self._one, self._urls))

    def close(self) -> None:
        self._client.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _one(self, url: str) -> Answer:
        until, wait_s, problem = self._resting.get(url, (0.0, self._retry_s, ""))
        if time.monotonic() < until:
            return Answer(url, "", problem)
        body, problem = self._get(url)
        if problem:
            self._resting[url] = (time.monotonic() + wait_s, min(2 * wait_s, _LONGEST_WAIT_S), problem)
        else:
            self._resting.pop(url, None)
        return Answer(url, body, problem)

    def _get(self, url: str) -> tuple[str, str]:
        give_up = time.monotonic() + self._timeout_s
        body = bytearray()
        try:
            with self._client.stream("GET", url) as answer:
                if answer.status_code in (401, 403):
                    return "", f"HTTP {answer.status_code}, it wants a key: --api-key-env or --header"
                if answer.status_code != 200:
                    return "", f"HTTP {answer.status_code}"
                for part in answer.iter_bytes():
                    body += part
                    if len(body) > MOST_BYTES:
                        return "", f"more than {MOST_BYTES >> 20} MB, not read"
                    if time.monotonic() > give_up:
                        return "", f"not done within {self._timeout_s:g} s"
        except httpx2.TimeoutException:
            return "", f"no answer within {self._timeout_s:g} s"
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return "", str(error) or type(error).__name__
        return body.decode(errors="replace"), ""
