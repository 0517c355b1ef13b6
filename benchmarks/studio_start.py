"""`python -m benchmarks.studio_start`: how soon `softlook studio` shows its page, and how soon its API answers.

Seconds from the start of the process, and its CPU time until then; the median of five starts.
"""

import statistics
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from socket import create_server

TOKEN = "a-token-of-this-benchmark"
RUNS = 5


def free_port() -> int:
    with create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def get(port: int, path: str, cookie: str = "") -> tuple[str, str]:
    """The body and the cookie of an answer, as soon as there is one."""
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", path, headers={"Cookie": cookie})
            answer = connection.getresponse()
            return answer.read().decode(), (answer.getheader("Set-Cookie") or "").partition(";")[0]
        except ConnectionError:
            time.sleep(0.005)
        finally:
            connection.close()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def start() -> tuple[float, ...]:
    port = free_port()
    command = ["-m", "softlook", "studio", "--no-browser", "--port", str(port), "--token", TOKEN]
    began = time.perf_counter()
    studio = subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL)
    try:
        page, cookie = get(port, f"/?token={TOKEN}")
        assert '"recording"' in page
        shown = time.perf_counter() - began, cpu_seconds(studio.pid)
        get(port, "/api/info", cookie)
        return *shown, time.perf_counter() - began, cpu_seconds(studio.pid)
    finally:
        studio.terminate()
        studio.wait()


def main() -> None:
    page, page_cpu, api, api_cpu = (statistics.median(one) for one in zip(*(start() for _ in range(RUNS)), strict=True))
    print(f"page with its recording: {page:.2f} s ({page_cpu:.2f} s of CPU)")
    print(f"answers of the API:      {api:.2f} s ({api_cpu:.2f} s of CPU)")


if __name__ == "__main__":
    main()
