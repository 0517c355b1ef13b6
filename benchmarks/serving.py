"""How much more a server says when many ask at once: `python -m benchmarks.serving`.

A server of its own process, with a GPT that has not learned anything, on a CPU; clients that ask again as soon as they
are answered. Every prompt is another one. With `--stream` words are sent one by one.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import torch

from softlook.models import GPT, GPTConfig
from softlook.tokens import train_tokenizer
from softlook.weights import save

WORDS = ["attention", "is", "a", "soft", "look-up", "of", "values", "by", "keys", "that", "match", "a", "query"]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--words", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--stream", action="store_true")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server, address = started(made(Path(folder), told.dim, told.depth), told.threads)
        try:
            asyncio.run(load(address, 4, 2.0, words=8, stream=False))  # what is needed once is fetched now
            first = None
            for clients in told.clients:
                run = load(address, clients, told.seconds, words=told.words, stream=told.stream)
                speed, took = asyncio.run(run)
                first = speed if first is None else first
                print(f"{clients:4} clients: {speed:8.0f} words/s ({speed / first:5.1f}x), median answer {took:6.2f} s")
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
