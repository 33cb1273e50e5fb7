"""Settings for every test."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no failure: how long an example takes depends on what else runs.
settings.register_profile("envdoctor", deadline=None)
settings.load_profile("envdoctor")
