"""Fetch one file from whichever of its addresses gives it, going on where the last try ended."""

from __future__ import annotations

import http.client
import re
import ssl
import time
import urllib.error
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envdoctor import part as parts
from envdoctor.reach import cause_of
from envdoctor.urls import mask, origin

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from envdoctor.meter import Meter
    from envdoctor.part import Part
    from envdoctor.pylock import Wheel
    from envdoctor.web import Web
    from envdoctor.wheelhouse import Wheelhouse

_CHUNK_BYTES = 128 * 1024
_PROGRESS_BYTES = 1024 * 1024
"""A try that brings so much before it fails is followed by the next at once."""
_SLOWEST_BYTES = 16 * 1024
"""A source that gives less within the time of silence is as good as silent."""
_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 10.0
_PASSING = {408, 425, 429}
"""Answers below 500 after which a second question makes sense: time-out, too early, too many."""
_NO_SUCH_RANGE = 416
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class Stopped(Exception):  # noqa: N818  no error: it was told to
    """The work is to end."""


class Fault(Exception):  # noqa: N818  says what is wrong with a source
    """One address did not give the file.

    Args:
        reason: In words, without the source.
        is_final: True if it is of no use to ask it again.
        is_wrong: True if it gave a whole file that is another one.
        wait_seconds: How long it asks to be left alone.
    """

    def __init__(
        self,
        reason: str,
        *,
        is_final: bool = False,
        is_wrong: bool = False,
        wait_seconds: float = 0.0,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_final = is_final
        self.is_wrong = is_wrong
        self.wait_seconds = wait_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How much is borne.

    Args:
        rounds: How often each address is asked.
        silence_seconds: How long a connection may be silent.
    """

    rounds: int
    silence_seconds: float


class Download:
    """The fetching of one wheel; runs in a thread of its own.

    Args:
        wheel: What to fetch.
        house: Where to.
        web: Opens addresses.
        stop: Set when the work is to end.
        meter: Counts bytes.
    """

    def __init__(
        self,
        wheel: Wheel,
        *,
        house: Wheelhouse,
        web: Web,
        stop: threading.Event,
        meter: Meter,
    ) -> None:
        self.wheel = wheel
        self._house = house
        self._web = web
        self._stop = stop
        self._meter = meter
        self.faults: dict[str, Fault] = {}
        """The last fault of each address."""

    def run(self, urls: Sequence[str], patience: Patience) -> bool:
        """Try each address in turn, and again after a pause; tell whether the wheel is there.

        Raises:
            SpaceError: There is no room for it.
            Stopped: The work is to end.
        """
        with parts.opened(self._house.part(self.wheel)) as part:
            if self._house.has(self.wheel):  # another process was quicker
                self._house.part(self.wheel).unlink(missing_ok=True)
                self._meter.kept(self.wheel.size or 0)
                return True
            self._meter.kept(part.length)
            for number in range(patience.rounds):
                left = [url for url in urls if not self._is_useless(url)]
                if any(self._obtain(part, url, patience) for url in left):
                    return True
                if left and number < patience.rounds - 1:
                    self._pause(left, _FIRST_WAIT_SECONDS * 2**number)
            self._meter.kept(-part.length)
        return False

    def _is_useless(self, url: str) -> bool:
        return url in self.faults and self.faults[url].is_final

    def _pause(self, urls: Sequence[str], seconds: float) -> None:
        asked = min(self.faults[url].wait_seconds for url in urls)
        if self._stop.wait(min(max(seconds, asked), _LONGEST_WAIT_SECONDS)):
            raise Stopped

    def _obtain(self, part: Part, url: str, patience: Patience) -> bool:
        """Tell whether the whole file came from an address, where need be in several pieces."""
        while True:
            before = part.length
            try:
                if not self._is_whole(part) and part.sha256 != self.wheel.sha256:
                    self._receive(part, url, patience)
                if self._accept(part, url):
                    return True
            except Fault as fault:
                self.faults[url] = fault
                if fault.is_final or part.length < before + _PROGRESS_BYTES:
                    return False

    def _is_whole(self, part: Part) -> bool:
        return self.wheel.size is not None and part.length == self.wheel.size > 0

    def _accept(self, part: Part, url: str) -> bool:
        """Keep a file whose hash is right; False if it is worth another try from the beginning."""
        if part.sha256 == self.wheel.sha256:
            served = {one for one in part.sources if one != "earlier"} or {url}
            self._house.keep(self.wheel, ", ".join(sorted(mask(origin(one)) for one in served)))
            return True
        if part.sources - {url}:
            self._forget(
                part
            )  # what another source gave, or an earlier build, may be what is wrong
            return False
        found = part.sha256
        self._meter.kept(-part.length)
        part.set_aside(self._house.wrong(self.wheel))
        raise Fault(
            f"gives a file of sha256 {found}, wanted {self.wheel.sha256}",
            is_final=True,
            is_wrong=True,
        )

    def _receive(self, part: Part, url: str, patience: Patience) -> None:
        """Read from an address until the file is whole.

        Raises:
            Fault: It does not become so.
        """
        wanted = self.wheel.size
        if wanted is not None and part.length > wanted:
            self._forget(part)
        with self._answer(part, url, patience) as response:
            stated = response.length
            start = part.length
            self._read(part, url, response, patience)
        if self._is_whole(part):
            return
        if stated is not None and part.length - start < stated:
            raise Fault(f"ended the connection {stated - part.length + start} bytes too early")
        if wanted is not None:
            raise Fault(f"gives {part.length} bytes, wanted {wanted}")
        if stated is None and part.sha256 != self.wheel.sha256:
            raise Fault(f"ended the connection after {part.length} bytes, of nobody knows how many")

    def _answer(self, part: Part, url: str, patience: Patience) -> http.client.HTTPResponse:
        headers = {"Range": f"bytes={part.length}-"} if part.length else {}
        try:
            response = self._web.open(url, headers=headers, timeout=patience.silence_seconds)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(part, error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _silence(error, patience, "did not answer") from None
        if part.length and response.status != 206:  # noqa: PLR2004  it ignores ranges
            self._forget(part)
        elif part.length:
            self._require_range(part, response)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            response.close()
            raise Fault("compresses what it gives, although asked not to", is_final=True)
        return response

    def _require_range(self, part: Part, response: http.client.HTTPResponse) -> None:
        match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != part.length:
            response.close()
            self._forget(part)
            raise Fault("answers with another range than it was asked for")

    def _refusal(self, part: Part, error: urllib.error.HTTPError) -> Fault:
        if error.code == _NO_SUCH_RANGE and self.wheel.size is not None:
            return Fault(
                f"has no more than {part.length} bytes, wanted {self.wheel.size}", is_final=True
            )
        if error.code == _NO_SUCH_RANGE:
            number = part.length
            self._forget(part)
            return Fault(f"gives another file, of {number} bytes", is_wrong=True)
        is_passing = error.code >= 500 or error.code in _PASSING  # noqa: PLR2004  server errors
        after = error.headers.get("Retry-After", "")
        return Fault(
            f"answered with an error (HTTP {error.code})",
            is_final=not is_passing,
            wait_seconds=float(after) if after.isdecimal() else 0.0,
        )

    def _read(
        self, part: Part, url: str, response: http.client.HTTPResponse, patience: Patience
    ) -> None:
        since, got = time.monotonic(), 0
        while not self._is_whole(part):
            if self._stop.is_set():
                raise Stopped
            room = _CHUNK_BYTES if self.wheel.size is None else self.wheel.size - part.length
            try:
                chunk = response.read1(min(_CHUNK_BYTES, room))
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise _silence(error, patience, "broke the connection") from None
            if not chunk:
                return
            part.write(chunk, url)
            self._meter.came(len(chunk))
            got += len(chunk)
            if (elapsed := time.monotonic() - since) > patience.silence_seconds:
                if got < _SLOWEST_BYTES:
                    raise Fault(f"gave {got} bytes within {elapsed:.0f} s")
                since, got = time.monotonic(), 0

    def _forget(self, part: Part) -> None:
        self._meter.kept(-part.length)
        part.restart()


def _silence(error: Exception, patience: Patience, what: str) -> Fault:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    match reason:
        case TimeoutError():
            return Fault(f"was silent for {patience.silence_seconds:.0f} s")
        case ssl.SSLCertVerificationError():
            return Fault("has a certificate that is not trusted", is_final=True)
        case _:
            return Fault(f"{what} ({cause_of(reason)})")
