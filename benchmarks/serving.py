"""How much more a server says when many ask at once: `python -m benchmarks.serving`.

A server of its own process, with a GPT that has not learned anything, on a CPU; clients that ask again as soon as they
are answered. Every prompt is another one. Answers come at once, and then word by word.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx
import torch

from benchmarks.report import Report, Table
from softlook.models import GPT, GPTConfig
from softlook.tokens import train_tokenizer
from softlook.weights import save

WORDS = ["attention", "is", "a", "soft", "look-up", "of", "values", "by", "keys", "that", "match", "a", "query"]
ABOUT = (
    "Words a second that all clients together are told, {words} in an answer, by a server in a process of its own "
    "with {threads} threads; the clients share the machine with it. All numbers of clients in turn, {laps} laps; "
    "medians, and ratios of one lap. Where others use the machine too, the time that the server itself computes for "
    "a word says more: what others take away does not count there."
)


def made(folder: Path, dim: int, depth: int) -> Path:
    """A checkpoint with a tokenizer of bytes."""
    tokenizer = train_tokenizer([], kind="bytes")
    tokenizer.save(str(folder / "words.json"))
    sizes = GPTConfig(vocab=tokenizer.get_vocab_size(), context=512, dim=dim, depth=depth, heads=dim // 64)
    return save(GPT(sizes), folder / "model", tokenizer=folder / "words.json")


def started(model: Path, threads: int) -> tuple[subprocess.Popen[str], str]:
    """A server, and its address once it listens."""
    line = [sys.executable, "-m", "softlook", "serve", f"gpt={model}", "--port", "0"]
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    server = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=env)
    assert server.stderr is not None
    for said in server.stderr:
        if "Listening on " in said:
            return server, said.split("Listening on ")[1].split()[0]
    raise RuntimeError("the server did not start")


async def load(address: str, clients: int, seconds: float, *, words: int, stream: bool) -> tuple[float, float]:
    """Words a second that all clients were told, and seconds that the median answer took."""
    told, took = 0, list[float]()
    end = time.perf_counter() + seconds

    async def ask(number: int, client: httpx.AsyncClient) -> None:
        nonlocal told
        count = 0
        while time.perf_counter() < end:
            began, count = time.perf_counter(), count + 1
            prompt = " ".join(WORDS[(number + count + i) % len(WORDS)] for i in range(6))
            body = {"model": "gpt", "prompt": prompt, "max_tokens": words, "seed": number, "stream": stream}
            answer = await client.post("/v1/completions", json=body)
            answer.raise_for_status()
            told += words
            took.append(time.perf_counter() - began)

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=300, limits=limits, trust_env=False) as client:
        began = time.perf_counter()
        await asyncio.gather(*(ask(number, client) for number in range(clients)))
        return told / (time.perf_counter() - began), sorted(took)[len(took) // 2]


@dataclass
class Round:
    """What one number of clients was told, lap by lap."""

    speeds: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    computed: list[float] = field(default_factory=list)
    """Milliseconds that the server computed for a word."""


def computed(server: subprocess.Popen[str]) -> float:
    """Seconds that a server has computed until now, by all its threads: other people's work does not count."""
    fields = Path(f"/proc/{server.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rounds(address: str, server: subprocess.Popen[str], told: argparse.Namespace, *, stream: bool) -> dict[int, Round]:
    """All numbers of clients in turn, several times over: whoever else uses the machine disturbs them alike."""
    found = {clients: Round() for clients in told.clients}
    for _ in range(told.laps):
        for clients, one in found.items():
            before, began = computed(server), time.perf_counter()
            speed, took = asyncio.run(load(address, clients, told.seconds, words=told.words, stream=stream))
            words = speed * (time.perf_counter() - began)
            one.speeds.append(speed)
            one.took.append(took)
            one.computed.append((computed(server) - before) * 1000 / words)
    return found


def measured(table: Table, name: str, found: dict[int, Round]) -> None:
    """A row for each number of clients, against the first; ratios are of one lap, and their median is told."""
    first = next(iter(found.values()))
    for clients, one in found.items():
        ratios = [speed / alone for speed, alone in zip(one.speeds, first.speeds, strict=True)]
        less = [alone / own for own, alone in zip(one.computed, first.computed, strict=True)]
        table.add(
            name,
            str(clients),
            f"{median(one.speeds):,.0f}",
            f"{median(ratios):.1f}",
            f"{min(ratios):.1f} to {max(ratios):.1f}",
            f"{median(one.computed):.2f}",
            f"{median(less):.1f}",
            f"{median(one.took):.2f}",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=["256x4", "512x8"], help="width x depth")
    parser.add_argument("--words", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--laps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 64])
    told = parser.parse_args()
    report = Report("cpu", f"python -m benchmarks.serving {' '.join(sys.argv[1:])}".strip(), topic="serving")
    report.section("Many clients of one server", ABOUT.format(words=told.words, laps=told.laps, threads=told.threads))
    table = report.table(
        "model", "clients", "words/s", "ratio", "laps", "ms of CPU a word", "ratio of that", "seconds an answer"
    )
    for size in told.sizes:
        dim, depth = map(int, size.split("x"))
        with tempfile.TemporaryDirectory() as folder:
            server, address = started(made(Path(folder), dim, depth), told.threads)
            try:
                asyncio.run(load(address, 4, 2.0, words=8, stream=False))  # what is needed once is fetched now
                for stream in (False, True):
                    name = f"GPT, {size}{', word by word' if stream else ''}"
                    measured(table, name, rounds(address, server, told, stream=stream))
            finally:
                server.terminate()
                server.wait()


if __name__ == "__main__":
    main()
