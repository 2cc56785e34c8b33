"""What is wrong with a server's TLS, in words that people can act on."""

from __future__ import annotations

import ssl

# The numbers of OpenSSL, as `SSLCertVerificationError.verify_code` gives them.
_SELF_SIGNED, _UNKNOWN_SIGNER = (18, 19), (2, 20, 21)
_NOT_YET, _EXPIRED, _OTHER_NAME = 9, 10, (62, 63, 64)

_TRUST = "trust it with --ca-file FILE, or verify nothing with --insecure (in config.toml: ca_file, insecure)"
_NO_CURE = "--ca-file does not help here, --insecure goes without verifying"


def tls_problem(error: BaseException) -> str:
    """Of this error or of one that it came from; empty where TLS has nothing to do with it."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, ssl.SSLError):
        seen = seen.__cause__ or seen.__context__
    if isinstance(seen, ssl.SSLCertVerificationError):
        return _certificate(seen.verify_code, seen.verify_message)
    if isinstance(seen, ssl.SSLError):
        reason = str(seen.reason or "no reason given").lower().replace("_", " ")
        plain_http = seen.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
        return "it does not speak TLS; http:// instead of https://?" if plain_http else f"TLS failed: {reason}"
    return ""


def _certificate(code: int, message: str) -> str:
    if code in _SELF_SIGNED:
        return f"its certificate is signed by itself, and by no authority known here; {_TRUST}"
    if code in _UNKNOWN_SIGNER:
        return f"its certificate is signed by an authority that is not known here; {_TRUST}"
    if code == _EXPIRED:
        return f"its certificate has expired; {_NO_CURE}"
    if code == _NOT_YET:
        return f"its certificate is not valid yet: are the clocks right? {_NO_CURE}"
    if code in _OTHER_NAME:
        return f"its certificate is for another name ({message}); ask by a name that it holds. {_NO_CURE}"
    return f"its certificate is not accepted: {message}; {_TRUST}"
