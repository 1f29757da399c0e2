"""ClientTls: the contexts of TLS connections, made again after the files have changed. Loop thread."""

import errno
import logging
import os
import socket
import ssl

from firearrow.client.base.errors import ConfigError
from firearrow.client.base.options import TlsOptions

log = logging.getLogger("firearrow.client")

_ADVICE = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server wants a certificate: set TlsOptions.certificate and key",
    "TLSV1_ALERT_UNKNOWN_CA": "the server does not trust the authority of TlsOptions.certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "TlsOptions.certificate has expired: renew it, the new one is read for the next "
    "connection",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the server refuses TlsOptions.certificate: look at its dates and its authority",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the server may want a certificate: set TlsOptions.certificate and key",
    "WRONG_VERSION_NUMBER": "the server does not speak TLS",
    "UNEXPECTED_EOF_WHILE_READING": "the server does not speak TLS, or refuses this client",
}

_UNTRUSTED = (
    "name the authority that signed the server's certificate in TlsOptions.authority; "
    "for commands: firearrow context add NAME --authority FILE"
)
_VERIFY_ADVICE = {
    9: "the server's certificate is not valid yet: compare the clocks of both machines",
    10: "the server's certificate, or its authority's, has expired: renew it there",
    62: "name what is in the server's certificate in TlsOptions.server_name",
    64: "name what is in the server's certificate in TlsOptions.server_name",
} | dict.fromkeys((2, 18, 19, 20, 21, 27), _UNTRUSTED)
"""By OpenSSL's verify code."""


class ClientTls:
    """`option`: ClientOptions.tls, unless it is False. ConfigError: a file cannot be used."""

    def __init__(self, option: bool | TlsOptions | ssl.SSLContext) -> None:
        self._options = option if isinstance(option, TlsOptions) else TlsOptions()
        self._states = self._look()
        self._given = isinstance(option, ssl.SSLContext)
        self._context = option if isinstance(option, ssl.SSLContext) else made_context(self._options)

    def context(self) -> ssl.SSLContext:
        """For a new connection, with the files as they are now; if they cannot be used, as they were before."""
        states = self._look()
        if states != self._states and not self._given:
            self._states = states
            try:
                self._context = made_context(self._options)
            except ConfigError as error:
                log.warning("the TLS files have changed, but those read before stay in use: %s", error)
        return self._context

    def server_name(self, host: str) -> str:
        """The name that a server's certificate must have."""
        return self._options.server_name or host

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        options = self._options
        return tuple(_state(path) for path in (options.authority, options.certificate, options.key) if path)


def made_context(options: TlsOptions) -> ssl.SSLContext:
    """A new context. ConfigError: a file cannot be used."""
    try:
        context = ssl.create_default_context(cafile=options.authority)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"TlsOptions.authority={options.authority}: {_words(error)}") from None
    if (
        options.authority is not None
    ):  # it may be the server's own certificate; Python 3.13 takes that by itself
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.certificate is not None:
        try:
            context.load_cert_chain(options.certificate, options.key, lambda: options.key_password or "")
        except (OSError, ssl.SSLError) as error:
            named = f"certificate={options.certificate}, key={options.key}"
            raise ConfigError(f"TlsOptions.{named}: {_words(error)}") from None
    return context


def tls_fault(error: Exception) -> str:
    """What failed, and what to do about it if that is known."""
    if f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return "nothing listens there: start the server, or give the address of one that runs"
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    if not str(error):  # asyncio's ConnectionResetError
        return "closed during the TLS handshake: the server does not speak TLS, or refuses this client"
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _VERIFY_ADVICE.get(error.verify_code)
    else:
        advice = _ADVICE.get(getattr(error, "reason", None) or "")
    return f"{error}: {advice}" if advice else str(error)


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "").lower().replace("_", " ")
        return reason or "not in PEM format, or the key's password is wrong"
    return error.strerror or str(error)


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
