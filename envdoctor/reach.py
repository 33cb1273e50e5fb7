"""Whether a package source answers."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from envdoctor.urls import local_path, origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from envdoctor.pip_config import PipConfig

_TIMEOUT_SECONDS = 4.0


def unreachable(locations: Iterable[str], *, pip: PipConfig) -> Mapping[str, str]:
    """Try each source once, all at the same time.

    Args:
        locations: Index URLs and find-links: `https:`, `http:` or `file:` URLs, or plain paths.
        pip: Says which certificate, proxy and hosts to trust.

    Returns:
        For each that does not answer, why: `download.pytorch.org did not answer (DNS)`.
    """
    wanted = list(dict.fromkeys(locations))
    reasons: dict[str, str] = {}

    def try_one(location: str) -> None:
        reasons[location] = _reason(location, pip)

    # Name resolution has no time limit of its own, so a thread that hangs in it is left behind.
    threads = [threading.Thread(target=try_one, args=(one,), daemon=True) for one in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_TIMEOUT_SECONDS + 1.0)
    late = {one: f"{origin(one)} did not answer (time-out)" for one in wanted}
    return {one: reason for one in wanted if (reason := dict(reasons).get(one, late[one]))}


def _reason(location: str, pip: PipConfig) -> str:
    path = local_path(location)
    if path is not None:
        return "" if path.exists() else f"{path} does not exist"
    cause = _ask(location, pip)
    return f"{origin(location)} {cause}" if cause else ""


def _ask(url: str, pip: PipConfig) -> str:
    """Return why an index does not answer; any answer but a server's error will do.

    An index may refuse the page that is asked for, or want credentials, and yet serve packages. Nor
    is a certificate judged here: uv trusts others than this Python does.
    """
    try:
        parts = urlsplit(url)
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        request = urllib.request.Request(f"{bare.rstrip('/')}/torch/", method="HEAD")  # noqa: S310
        proxies = {"http": pip.proxy, "https": pip.proxy} if pip.proxy else None
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=_context(url, pip)),
            urllib.request.ProxyHandler(proxies),
        )
        with opener.open(request, timeout=_TIMEOUT_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        error.close()
        is_broken = error.code >= 500  # noqa: PLR2004  server errors
        return f"answered with an error (HTTP {error.code})" if is_broken else ""
    except urllib.error.URLError as error:
        cause = cause_of(error.reason)
        return f"did not answer ({cause})" if cause else ""
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"did not answer ({cause_of(error)})"


def _context(url: str, pip: PipConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=pip.cert or None)
    if {origin(url), urlsplit(url).hostname} & set(pip.trusted_hosts):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def cause_of(reason: object) -> str:
    """Return why there is no answer, in words; empty for a certificate, which uv may trust."""
    match reason:
        case socket.gaierror():
            return "DNS"
        case TimeoutError():
            return "time-out"
        case ConnectionRefusedError():
            return "connection refused"
        case ssl.SSLCertVerificationError():
            return ""
        case _:
            return str(reason)
