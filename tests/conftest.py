"""Settings for every test."""

from __future__ import annotations

import signal

from hypothesis import settings

# A busy machine is no failure: how long an example takes depends on what else runs.
settings.register_profile("envdoctor", deadline=None)
settings.load_profile("envdoctor")

# Started in the background by a shell, we ignore SIGINT, and so would every child: tests that
# interrupt one would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
