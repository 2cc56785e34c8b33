"""Recognise secrets: by the name of what holds them, and where a server repeats them in its text."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus, unquote

import msgspec

from swarmtui.model.base import Stored

T = TypeVar("T")

# msgspec reads a type when it is first used, and crashes if two threads do so at once.
_converting = Lock()
MASK = "…"
# Shorter values are not secrets: redacting them would mangle ordinary text.
_MIN_LENGTH = 6
# The shortest part of a key that is redacted.
_PART = 8
# Every part of _PART characters contains a block of _BLOCK characters that starts at a multiple of _STRIDE.
_STRIDE, _BLOCK = 4, 5

_SECRET_WORDS = frozenset(
    ("auth", "authorization", "bearer", "cookie", "cookies", "credential", "credentials", "header", "headers", "hft",
     "jwt", "keys", "otp", "pass", "passcode", "passphrase", "passwd", "psk", "pw", "pwd", "secrets")
)  # fmt: skip
# "authtoken" and "apikey" are secrets, "tokens" and "tokenizer" are not.
_SECRET_ENDINGS = ("key", "token", "secret", "password")
_SECRET_VALUE = re.compile(
    r"\b(?:hf|gsk|gh[pousr])_\w{8,}|\b(?:sk|pk|xai|nvapi)-[\w-]{8,}|\beyJ[\w-]{10,}\.|://[^/\s]*@|\bBearer\s",
    re.IGNORECASE,
)
# A long word of letters and digits.
_RANDOM = re.compile(r"(?=[a-z]*\d)(?=\d*[a-z])[a-z\d]{12,}", re.IGNORECASE)
_URL = re.compile(
    r"(?P<scheme>[^:/?#]*://)?(?:(?P<user>[^/?#]*)@)?(?P<host>[^/?#]*)(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?",
    re.DOTALL,
)
# The parts of a path, and the names in a query, whose values are stored and shown.
_SHOWN_PATH = re.compile(r"v\d+|api|chat|completions|messages|responses|metrics|")
_SHOWN_QUERY = frozenset(("api-version", "api_version", "version", "model", "deployment", "region", "location", "beta"))
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_secret_name(name: str) -> bool:
    """Return whether a flag, variable, header or JSON key is named like a secret: --hf-authtoken, HF_TOKEN, apiKey."""
    words = [word.lower() for word in _WORDS.findall(name)]
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS) for word in words)


def looks_like_key(value: str) -> bool:
    """Return whether a text has the form of a key: a known prefix, or a long word of letters and digits."""
    return has_key_prefix(value) or bool(_RANDOM.search(value))


def has_key_prefix(value: str) -> bool:
    return bool(_SECRET_VALUE.search(value))


def mask_secrets(value: Any) -> Any:
    """Mask the values in decoded JSON or TOML that are secret by their name or form, at any depth."""
    match value:
        case dict():
            return {name: MASK if is_secret_name(name) else mask_secrets(part) for name, part in value.items()}
        case list() | tuple():
            return [mask_secrets(part) for part in value]
        case str() if has_key_prefix(value):
            return MASK
    return value


def cover_url(url: str) -> tuple[str, list[str]]:
    """Mask what may be secret in a URL; return the result, and what was masked."""
    found, hidden = _URL.fullmatch(url), list[str]()
    assert found is not None  # any text matches
    scheme, user, host, path, query, fragment = (part or "" for part in found.groups())

    def mask(text: str) -> str:
        hidden.extend((text, unquote(text)))
        return MASK

    names = path.split("/")
    for i, name in enumerate(names):
        named = is_secret_name(name) and re.search(r"[\d=]", name)
        follows = i > 0 and is_secret_name(names[i - 1]) and not _SHOWN_PATH.fullmatch(name)
        names[i] = mask(name) if named or follows or looks_like_key(name) else name
    values = []
    for part in query.split("&") if query else ():
        name, equals, value = part.rpartition("=") if "=" not in part else part.partition("=")
        plain = re.fullmatch(r"[\w.-]*", value) and not looks_like_key(value)
        harmless = unquote(name).lower() in _SHOWN_QUERY and plain
        values.append(f"{name}{equals}{value if harmless else mask(value)}")
    shown = scheme + (f"{mask(user)}@" if user else "") + host + "/".join(names)
    return shown + (f"?{'&'.join(values)}" if values else "") + (f"#{mask(fragment)}" if fragment else ""), hidden


class Secrets(Stored, frozen=True, kw_only=True):
    """Credentials for requests. They are passed between processes in pipes, and never stored.

    `urls` are the endpoints whose URL has a query or a part that is not shown, by the URL that is shown.
    """

    api_key: str | None = None
    headers: dict[str, str] = {}
    urls: dict[str, str] = {}

    def __repr__(self) -> str:
        return "Secrets(…)"


class Redactor:
    """Replaces secrets in text, also in lower case, URL- and base64-encoded.

    In keys, every part of 8 or more characters is replaced; other header values are replaced only as a whole. `longest`
    is the length of the longest text that is searched for.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._parts: set[str] = set()
        self._blocks: set[str] = set()
        self._wholes: set[str] = set()
        for value in _keys(secrets):
            for form in _forms(value):
                self._add(form)
        for name, value in secrets.headers.items():
            if not is_secret_name(name) and len(value) >= _MIN_LENGTH:
                self._wholes.update(_forms(value))
        for value in (part for url in secrets.urls.values() for part in cover_url(url)[1] if len(part) >= _MIN_LENGTH):
            self._wholes.update(_forms(value))
        forms = (*self._parts, *self._wholes)
        self._starts = {form[:length] for form in forms for length in range(1, len(form))}
        self.longest = max(map(len, forms), default=0)

    def _add(self, form: str) -> None:
        if len(form) < _PART:
            self._wholes.add(form)
            return
        last = len(form) - _PART
        self._parts.update(form[at : at + _PART] for at in range(last + 1))
        self._blocks.update(form[at : at + _BLOCK] for at in range(0, len(form) - _BLOCK + 1, _STRIDE))

    def redact(self, text: str) -> str:
        return _masked(text, self._spans(_lower(text)))

    def redact_start(self, text: str, limit: int) -> str:
        """Redact the first `limit` characters; no more is read than shows whether a secret continues after them."""
        spans = [span for span in self._spans(_lower(text[: limit + self.longest])) if span[0] < limit]
        end = max([limit, *(span[1] for span in spans[-1:])])
        return _masked(text[:end], spans)[:limit]

    def redact_streamed(self, text: str) -> tuple[str, int]:
        """Redact text that continues, up to what may be the start of a secret; return it and where to resume."""
        lowered = _lower(text)
        spans, end = self._spans(lowered), len(text) - self._held_back(lowered)
        for begin, until in reversed(spans):
            end = begin if begin < end < until else end
        return _masked(text[:end], [span for span in spans if span[1] <= end]), end

    def redact_end(self, text: str, limit: int) -> str:
        """Redact the last `limit` characters of text that continues.

        The text must begin `longest` characters earlier, if there are any, so that no secret is cut at its beginning.
        """
        lowered = _lower(text)
        start, end = max(0, len(text) - limit), len(text) - self._held_back(lowered)
        spans = self._spans(lowered)
        for begin, until in spans:
            start = until if begin < start < until else start
            end = begin if begin < end < until else end
        shown = [(begin - start, until - start) for begin, until in spans if begin >= start and until <= end]
        return _masked(text[start:end], shown)

    def _spans(self, lowered: str) -> list[tuple[int, int]]:
        """Return where secrets begin and end, in order and without overlaps."""
        found = [(at, at + len(whole)) for whole in self._wholes for at in _occurrences(whole, lowered)]
        if any(block in lowered for block in self._blocks):
            starts = range(len(lowered) - _PART + 1)
            found += [(at, at + _PART) for at in starts if lowered[at : at + _PART] in self._parts]
        spans: list[tuple[int, int]] = []
        for begin, end in sorted(found):
            if spans and begin < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((begin, end))
        return spans

    def _held_back(self, lowered: str) -> int:
        """Return how many characters at the end may be the start of a secret."""
        longest = min(len(lowered), self.longest - 1)
        return next((n for n in range(longest, 0, -1) if lowered[-n:] in self._starts), 0)

    def redact_all(self, value: T) -> T:
        """Redact all text in a struct or in decoded JSON."""
        if isinstance(value, msgspec.Struct):
            plain = self._walk(msgspec.to_builtins(value))
            with _converting:
                return msgspec.convert(plain, type(value))
        redacted: T = self._walk(value)
        return redacted

    def _walk(self, value: Any) -> Any:
        match value:
            case str():
                return self.redact(value)
            case dict():
                return {self._walk(key): self._walk(part) for key, part in value.items()}
            case list() | tuple():
                return [self._walk(part) for part in value]
        return value


def _keys(secrets: Secrets) -> Iterator[str]:
    """Yield the values of which parts count, without the scheme of an Authorization header."""
    named = (value for name, value in secrets.headers.items() if is_secret_name(name))
    for value in (secrets.api_key or "", *named):
        key = value.strip().removeprefix("Bearer ").strip()
        if len(key) >= _MIN_LENGTH:
            yield key


def _forms(value: str) -> set[str]:
    """Return the lower-case forms in which a value may be repeated; base64 depends on its position modulo 3."""
    data = value.encode(errors="surrogateescape")
    forms = {
        value,
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        quote_plus(value, errors="replace"),
    }
    for shift in range(3):
        encoded = b64encode(bytes(shift) + data).decode()[(0, 2, 3)[shift] :].rstrip("=")
        # The last character also holds bits of what follows.
        encoded = encoded[:-1] if (shift + len(data)) % 3 else encoded
        forms |= {encoded, encoded.replace("+", "-").replace("/", "_")}
    return {_lower(form) for form in forms if len(form) >= _MIN_LENGTH}


def _lower(text: str) -> str:
    """Convert to lower case, except letters whose lower-case form is longer: positions must not shift."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(c if len(c.lower()) != 1 else c.lower() for c in text)


def _masked(text: str, spans: list[tuple[int, int]]) -> str:
    pieces, done = [], 0
    for begin, end in spans:
        pieces += [text[done:begin], MASK]
        done = end
    return "".join(pieces) + text[done:] if pieces else text


def _occurrences(part: str, text: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)
