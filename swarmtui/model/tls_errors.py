"""Describe TLS errors, with what the user can do about them."""

from __future__ import annotations

import ssl

# Error numbers of OpenSSL, as `SSLCertVerificationError.verify_code` gives them.
_SELF_SIGNED, _UNKNOWN_SIGNER = (18, 19), (2, 20, 21)
_NOT_YET, _EXPIRED, _OTHER_NAME = 9, 10, (62, 63, 64)

_TRUST_HINT = "trust it with --ca-file FILE, or turn verification off with --insecure (config.toml: ca_file, insecure)"
_INSECURE_HINT = "--ca-file does not help here; --insecure turns verification off"


def tls_problem(error: BaseException) -> str:
    """Describe this error or the TLS error that caused it; empty if it is not a TLS error."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, ssl.SSLError):
        seen = seen.__cause__ or seen.__context__
    if isinstance(seen, ssl.SSLCertVerificationError):
        return _describe_certificate_error(seen.verify_code, seen.verify_message)
    if isinstance(seen, ssl.SSLError):
        reason = str(seen.reason or "no reason given").lower().replace("_", " ")
        plain_http = seen.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
        return "the server does not use TLS; http:// instead of https://?" if plain_http else f"TLS failed: {reason}"
    return ""


def _describe_certificate_error(code: int, message: str) -> str:
    if code in _SELF_SIGNED:
        return f"its certificate is self-signed; {_TRUST_HINT}"
    if code in _UNKNOWN_SIGNER:
        return f"its certificate is signed by an unknown authority; {_TRUST_HINT}"
    if code == _EXPIRED:
        return f"its certificate has expired; {_INSECURE_HINT}"
    if code == _NOT_YET:
        return f"its certificate is not valid yet (is a clock wrong?); {_INSECURE_HINT}"
    if code in _OTHER_NAME:
        return f"its certificate is for another name ({message}); use a name that it covers. {_INSECURE_HINT}"
    return f"its certificate was rejected: {message}; {_TRUST_HINT}"
