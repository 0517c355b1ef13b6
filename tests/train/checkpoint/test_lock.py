"""A run directory is locked by one process at a time; the lock of a dead process is released."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from softlook.base.errors import TrainingError
from softlook.train.checkpoint.run_dir import RunDir, hold_lock
from tests.train.tiny import run_training

HOLD = """
import sys, time
from pathlib import Path
from softlook.train.checkpoint.run_dir import hold_lock

with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def start_holder(folder: Path) -> subprocess.Popen[str]:
    """Start a process that holds the lock of a folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_locked_run_raises_with_its_holder_and_a_dead_process_holds_no_lock(tmp_path: Path) -> None:
    process = start_holder(tmp_path)
    try:
        message = rf"^{tmp_path} is in use by process {process.pid} on {socket.gethostname()}. Wait for it, or choose"
        with pytest.raises(TrainingError, match=message):
            run_training(tmp_path, max_steps=1)
        assert not (tmp_path / "checkpoints").exists()
    finally:
        process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        process.communicate()
    assert run_training(tmp_path, max_steps=1)[1].step == 1


def test_the_lock_is_released_after_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), hold_lock(tmp_path):
            raise ZeroDivisionError
    with hold_lock(tmp_path):
        assert f'"pid": {os.getpid()}' in (tmp_path / "lock.json").read_text(encoding="utf-8")
    assert (tmp_path / "lock.json").read_text(encoding="utf-8") == "{}"


def test_the_lock_is_reentrant_within_a_thread(tmp_path: Path) -> None:
    with RunDir(tmp_path).lock():
        assert run_training(tmp_path, max_steps=1)[1].step == 1
        with pytest.raises(TrainingError, match=r"is in use by process \d+"):
            run_in_thread(lambda: run_training(tmp_path, max_steps=2))


def run_in_thread(action: object) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            action()  # pyright: ignore[reportCallIssue]
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def test_a_lock_without_holder_information_is_still_a_lock(tmp_path: Path) -> None:
    process = start_holder(tmp_path)
    try:
        (tmp_path / "lock.json").write_text("", encoding="utf-8")
        with pytest.raises(TrainingError, match=r"is in use by another process"), hold_lock(tmp_path):
            pass
    finally:
        process.kill()
        process.communicate()
