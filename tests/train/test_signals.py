from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from train.signals import InterruptedRunError, StopSignal


def test_signal_outside_of_the_steps_ends_the_run() -> None:
    stop = StopSignal()
    with pytest.raises(InterruptedRunError), stop.installed():
        signal.raise_signal(signal.SIGTERM)


def test_signal_within_the_steps_is_noted() -> None:
    stop = StopSignal()
    with stop.installed(), stop.finishing_steps():
        signal.raise_signal(signal.SIGINT)
    assert stop.requested


def test_former_handlers_come_back() -> None:
    former = signal.getsignal(signal.SIGINT)
    with StopSignal().installed():
        assert signal.getsignal(signal.SIGINT) != former
    assert signal.getsignal(signal.SIGINT) == former


def test_second_signal_exits_at_once() -> None:
    code = (
        "import signal, time\n"
        "from train.signals import StopSignal\n"
        "stop = StopSignal()\n"
        "with stop.installed(), stop.finishing_steps():\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    print('finishing', flush=True)\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    print('not reached', flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (130, "finishing\n")
