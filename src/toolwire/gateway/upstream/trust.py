"""Whom to trust: TLS as the system is set up, and what to check when it fails."""

from __future__ import annotations

import ssl

from toolwire.gateway.upstream.faults import Fault

_AUTHORITY = (
    "its certificate comes from no authority that is trusted here: behind a company's proxy or with an own authority, "
    "set ca_file for this provider or SSL_CERT_FILE; if nothing is trusted, install the system's CA certificates"
)
_HOST = "its certificate is for another name: check the host in the base URL"
_VERIFY: dict[int, str] = {
    9: "its certificate is not valid yet: check this machine's clock",
    10: "its certificate has expired: check this machine's clock, else only the provider can mend it",
    18: _AUTHORITY,
    19: _AUTHORITY,
    20: _AUTHORITY,
    21: _AUTHORITY,
    62: _HOST,
    64: _HOST,
}
"""OpenSSL's numbers for what is wrong with a certificate."""
_REASONS: dict[str, str] = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS on this port: check whether the URL begins with http:// or https://",
    "HTTP_REQUEST": "it does not speak TLS on this port: check whether the URL begins with http:// or https://",
    "RECORD_LAYER_FAILURE": "it does not speak TLS on this port: check whether the URL begins with http:// or https://",
    "UNSUPPORTED_PROTOCOL": "it speaks only versions of TLS that are too old",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks only versions of TLS that are too old",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a client certificate, which is not supported",
}


class Trust:
    """Contexts of TLS, made when first needed: reading the system's certificates takes a while."""

    def __init__(self) -> None:
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(self, ca_file: str) -> ssl.SSLContext | Fault:
        """The system's authorities (OpenSSL reads SSL_CERT_FILE and SSL_CERT_DIR), and those of a `ca_file`."""
        known = self._contexts.get(ca_file)
        if known is not None:
            return known
        context = ssl.create_default_context()
        try:
            if ca_file:
                context.load_verify_locations(ca_file)
        except OSError:
            return Fault("tls", f"the ca_file {ca_file} cannot be read: it must exist and hold PEM certificates")
        context.set_alpn_protocols(["http/1.1"])
        self._contexts[ca_file] = context
        return context


def read_tls_error(error: Exception, peer: str) -> Fault:
    if isinstance(error, ssl.SSLCertVerificationError):
        what = _VERIFY.get(error.verify_code) or f"its certificate is not accepted ({error.verify_message})"
    elif isinstance(error, ssl.SSLError):
        reason = error.reason or "no reason given"
        what = _REASONS.get(reason) or f"OpenSSL says {reason.lower().replace('_', ' ')}"
    else:
        what = "it closed the connection during the handshake: check that this port speaks TLS"
    return Fault("tls", f"no secure connection to {peer}: {what}")
