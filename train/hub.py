"""Whether the hub can be asked for a target, found out before its library retries for a minute."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import constants, get_session, hf_hub_url

from train.progress import to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_SECONDS = 3.0
"""A name server or a network that is just starting may need as long."""
PAUSE_SECONDS = 0.5


def where_to_look(folder: str, *, say: Callable[[str], None] = to_stderr) -> dict[str, Any]:
    """Return what `from_pretrained` is to be told of the network.

    The library asks for each file of its own, six times each. Where it cannot be reached at all,
    what was fetched before is all there is.

    Args:
        folder: A folder, or a name on the hub.
        say: Told what is waited for.
    """
    if Path(folder).is_dir() or constants.HF_HUB_OFFLINE:
        return {}
    say(f"no folder here is named {folder}: asking {constants.ENDPOINT} for it")
    obstacle = _obstacle(folder)
    if not obstacle:
        return {}
    say(f"it cannot be reached ({obstacle}): taking what was fetched before, if any")
    return {"local_files_only": True}


def _obstacle(name: str) -> str:
    """Return why the hub does not answer; empty if it does, whatever it says."""
    try:
        url = hf_hub_url(name, "config.json")
    except ValueError:  # no name that the hub could know, which its library says by itself
        return ""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            get_session().head(url, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        except Exception as error:  # noqa: BLE001  which client it uses depends on its version
            if time.monotonic() > until:
                return (str(error).strip() or type(error).__name__).splitlines()[0]
            time.sleep(PAUSE_SECONDS)
        else:
            return ""
