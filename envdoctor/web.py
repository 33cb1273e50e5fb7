"""Requests over HTTP with the certificates, proxies and credentials that uv is given."""

from __future__ import annotations

import base64
import http.client
import importlib.util
import netrc
import socket
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from envdoctor import __version__
from envdoctor.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_WINDOW_BYTES = 512 * 1024
"""How much our kernel may take in ahead of us, which a killed process has to fetch again. What lies
in the kernel of the sender, up to 4 MB within one machine, never came and is not counted."""
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where distributions keep their certificates: a Python that was built elsewhere may not know."""


@dataclass(frozen=True, slots=True)
class Web:
    """A way to open addresses.

    Args:
        variables: Environment variables as uv sees them: SSL_CERT_FILE, HTTPS_PROXY, ...
        credentials: Value of the Authorization header, by scheme and host.
        trusted: Checks certificates.
        untrusted: Does not, for the hosts that pip is configured to trust blindly.
    """

    variables: Mapping[str, str]
    credentials: Mapping[str, str]
    trusted: ssl.SSLContext
    untrusted: ssl.SSLContext

    def open(
        self, url: str, *, headers: Mapping[str, str], timeout: float
    ) -> http.client.HTTPResponse:
        """Ask for an address; follows redirects, and gives credentials to their host alone.

        Args:
            url: May hold credentials.
            headers: To send.
            timeout: Seconds that the connection may be silent.

        Raises:
            urllib.error.HTTPError: The answer is an error.
            OSError: There is no answer.
            http.client.HTTPException: The answer is none of HTTP.
            ValueError: It is no such address.
        """
        request = urllib.request.Request(_bare(url), headers=dict(headers))  # noqa: S310  checked by _bare
        request.add_header("User-Agent", f"envdoctor/{__version__}")
        request.add_header("Accept-Encoding", "identity")
        self.authorize(request, url)
        parts = urlsplit(url)
        blind = self.variables.get("UV_INSECURE_HOST", "").split()
        context = self.untrusted if {parts.hostname, _host(parts)} & set(blind) else self.trusted
        opener = urllib.request.build_opener(
            _Http,
            _Https(context=context),
            _Redirects(self),
            urllib.request.ProxyHandler(self._proxies()),
        )
        response: http.client.HTTPResponse = opener.open(request, timeout=timeout)
        return response

    def authorize(self, request: urllib.request.Request, url: str) -> None:
        """Add the credentials of an address's host to a request, for that host only."""
        parts = urlsplit(url)
        found = _own(parts) or self.credentials.get(_site(parts)) or self._netrc(parts.hostname)
        if found:
            request.add_unredirected_header("Authorization", found)

    def _netrc(self, host: str | None) -> str:
        home = self.variables.get("HOME", "")
        file = Path(self.variables.get("NETRC") or Path(home, ".netrc"))
        try:
            entry = netrc.netrc(str(file)).authenticators(host or "")
        # A file that is not there, or broken: pip and uv go on without it as well.
        except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
            return ""
        return _basic(entry[0], entry[2]) if entry else ""

    def _proxies(self) -> dict[str, str]:
        """Return the proxies by scheme; ALL_PROXY stands for those that are not named."""
        given = {name.lower(): value for name, value in self.variables.items() if value}
        found = {
            scheme: given.get(f"{scheme}_proxy") or given.get("all_proxy", "")
            for scheme in ("http", "https")
        }
        return {scheme: proxy for scheme, proxy in found.items() if proxy}


def make(variables: Mapping[str, str], urls: Iterable[str]) -> Web:
    """Return a way to open addresses.

    Args:
        variables: Environment variables as uv sees them.
        urls: Addresses of indexes, whose credentials hold for all that their hosts serve.

    Raises:
        SourceError: The file of certificates that is configured holds none.
    """
    trusted = _trusting(variables)
    untrusted = ssl.create_default_context()
    untrusted.check_hostname = False
    untrusted.verify_mode = ssl.CERT_NONE
    parts = [one for url in urls if (one := _split(url))]
    return Web(
        variables=variables,
        credentials={_site(one): found for one in parts if (found := _own(one))},
        trusted=trusted,
        untrusted=untrusted,
    )


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, web: Web) -> None:
        self._web = web

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        found = super().redirect_request(req, fp, code, msg, headers, newurl)
        if found is not None:
            self._web.authorize(found, newurl)
        return found


class _Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _narrow(self.sock)


class _TlsConnection(http.client.HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        _narrow(self.sock)


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, *, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._trust = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TlsConnection, req, context=self._trust)


def _narrow(sock: socket.socket) -> None:
    """Bound what the kernel takes in ahead of us, which is lost with this process."""
    option = getattr(socket, "TCP_WINDOW_CLAMP", None)  # Linux only
    if option is not None:
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, option, _WINDOW_BYTES)


def _trusting(variables: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context with the certificates that are configured, or those of the system."""
    named = variables.get("SSL_CERT_FILE")
    if named and Path(named).is_file():
        try:
            return ssl.create_default_context(cafile=named)
        except OSError as error:
            raise SourceError(
                f"{named}: found no certificates ({error.strerror or error})",
                reference="certificates-not-readable",
                hint="set SSL_CERT_FILE, or pip's `cert`, to a file of certificates (PEM)",
            ) from error
    context = ssl.create_default_context()
    folder = ssl.get_default_verify_paths().capath
    has_any = context.get_ca_certs() or (folder and any(Path(folder).iterdir()))
    bundle = None if has_any else next((path for path in _bundles() if path.is_file()), None)
    if bundle is not None:
        context.load_verify_locations(bundle)
    return context


def _bundles() -> Iterator[Path]:
    """Yield where else certificates may be: of distributions, of the package certifi, of pip's."""
    yield from (Path(path) for path in _BUNDLES)
    for package in ("certifi", "pip"):
        found = importlib.util.find_spec(package)
        if found is not None and found.origin:
            inner = "_vendor/certifi/" if package == "pip" else ""
            yield Path(found.origin).parent / inner / "cacert.pem"


def _split(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:  # it holds no credentials that could be used
        return None


def _bare(url: str) -> str:
    """Return an address without credentials.

    Raises:
        ValueError: It is not one of HTTP.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("wanted an http or https address")
    return parts._replace(netloc=_host(parts), fragment="").geturl()


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _site(parts: SplitResult) -> str:
    return f"{parts.scheme}://{_host(parts)}".lower()


def _own(parts: SplitResult) -> str:
    """Return the Authorization header that an address's own credentials make; empty for none."""
    if "@" not in parts.netloc:
        return ""
    return _basic(unquote(parts.username or ""), unquote(parts.password or ""))


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
