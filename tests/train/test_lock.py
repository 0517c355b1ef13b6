"""One process at a time in a run's folder; whoever dies lets go."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from softlook.base.errors import TrainingError
from softlook.train.folder import RunFolder
from softlook.train.lock import held
from tests.train.tiny import trained

HOLD = """
import sys, time
from pathlib import Path
from softlook.train.lock import held

with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(lock: Path) -> subprocess.Popen[str]:
    """A process that holds a lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_told_who_is_there_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    process = holder(tmp_path / "lock.json")
    try:
        message = rf"^{tmp_path} is in use by process {process.pid} on {socket.gethostname()}. Wait for it, or choose"
        with pytest.raises(TrainingError, match=message):
            trained(tmp_path, steps=1)
        assert not (tmp_path / "checkpoints").exists()
    finally:
        process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        process.communicate()
    assert trained(tmp_path, steps=1)[1].step == 1


def test_a_lock_is_let_go_at_the_end_and_after_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), held(tmp_path / "lock"):
            raise ZeroDivisionError
    with held(tmp_path / "lock"):
        assert f'"pid": {os.getpid()}' in (tmp_path / "lock").read_text(encoding="utf-8")
    assert (tmp_path / "lock").read_text(encoding="utf-8") == "{}"


def test_who_holds_a_folder_may_train_in_it(tmp_path: Path) -> None:
    with RunFolder(tmp_path).mine():
        assert trained(tmp_path, steps=1)[1].step == 1
        with pytest.raises(TrainingError, match=r"is in use by process \d+"):
            in_a_thread(lambda: trained(tmp_path, steps=2))


def in_a_thread(action: object) -> None:
    faults: list[BaseException] = []

    def run() -> None:
        try:
            action()  # pyright: ignore[reportCallIssue]
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if faults:
        raise faults[0]


def test_a_lock_nobody_signed_is_still_a_lock(tmp_path: Path) -> None:
    process = holder(tmp_path / "lock.json")
    try:
        (tmp_path / "lock.json").write_text("", encoding="utf-8")
        with pytest.raises(TrainingError, match=r"is in use by another process"), held(tmp_path / "lock.json"):
            pass
    finally:
        process.kill()
        process.communicate()
