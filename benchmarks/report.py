"""Benchmark report: plain text on the terminal, and a Markdown file for the documentation."""

import os
import platform
import re
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"


class Report:
    """The file is rewritten after every line, so that an interrupted run keeps its results."""

    def __init__(self, device: str, command: str, folder: Path = FOLDER, topic: str = "") -> None:
        self.hardware = torch.cuda.get_device_name() if device == "cuda" else cpu_name()
        slug = re.sub(r"[^a-z0-9]+", "-", f"{self.hardware} {topic}".lower()).strip("-")
        self.path = folder / f"{date.today().isoformat()}-{slug}.md"
        self.summary: list[str] = []
        self.lines: list[str] = []
        self.environment = _environment(self.hardware, device, command)
        print("\n".join(f"{name}: {value}" for name, value in self.environment.items()), flush=True)

    def section(self, title: str, *paragraphs: str) -> None:
        self.lines += ["", f"## {title}", ""]
        print(f"\n== {title}", flush=True)
        for paragraph in paragraphs:
            self.text(paragraph)

    def text(self, paragraph: str) -> None:
        self.lines += [paragraph, ""]
        print(paragraph, flush=True)
        self.write()

    def summarize(self, line: str) -> None:
        """Add a line to the summary at the top of the file."""
        self.summary.append(f"- {line}")
        print(f"-> {line}", flush=True)
        self.write()

    def table(self, *header: str) -> "Table":
        return Table(self, header)

    def write(self) -> None:
        head = [
            f"# {self.hardware}, {date.today().isoformat()}",
            "",
            "Written by the scripts in `benchmarks/`; not edited by hand.",
            "",
            *(f"- {name}: {value}" for name, value in self.environment.items()),
            "",
            "## Summary",
            "",
            *self.summary,
        ]
        text = re.sub(r"\n{3,}", "\n\n", "\n".join([*head, *self.lines])).rstrip() + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text, encoding="utf-8")


class Table:
    """A table whose rows are printed as they are added."""

    def __init__(self, report: Report, header: Sequence[str]) -> None:
        self.report = report
        self.widths = [max(len(name) + 1, 8) for name in header]
        self.widths[0] = max(self.widths[0], 30)
        report.lines += [f"| {' | '.join(header)} |", "|" + "---|" * len(header), ""]
        self.end = len(report.lines) - 1
        print(self._aligned(header), flush=True)

    def add(self, *cells: object) -> None:
        texts = [_format_cell(cell) for cell in cells]
        self.report.lines.insert(self.end, f"| {' | '.join(texts)} |")
        self.end += 1
        print(self._aligned(texts), flush=True)
        self.report.write()

    def _aligned(self, texts: Sequence[str]) -> str:
        return " ".join(text.ljust(width) for text, width in zip(texts, self.widths, strict=True)).rstrip()


def ms(seconds: float | None) -> str:
    """Milliseconds with three significant digits."""
    if seconds is None:
        return "–"
    return f"{seconds * 1e3:#.3g}".rstrip(".") if seconds < 1 else f"{seconds * 1e3:.0f}"


def megabytes(count: float | None) -> str:
    return "–" if count is None else f"{count / 2**20:.1f}" if count < 100 * 2**20 else f"{count / 2**20:.0f}"


def _format_cell(cell: object) -> str:
    if cell is None:
        return "–"
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def cpu_name() -> str:
    """Model name and number of cores, without trademark signs."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    name = re.sub(r"\((R|TM)\)|@.*| CPU| \d+-Core Processor", "", name, flags=re.IGNORECASE)
    return f"{name.strip()}, {os.cpu_count()} cores"


def _environment(hardware: str, device: str, command: str) -> dict[str, str]:
    environment = {
        "hardware": hardware,
        "command": f"`{command}`",
        "python": platform.python_version(),
        "torch": f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}",
        "threads": str(torch.get_num_threads()),
        "load average before the run": f"{os.getloadavg()[0]:.1f}",
    }
    if device == "cuda":
        environment |= _cuda_environment()
    return environment


def _cuda_environment() -> dict[str, str]:
    triton = sys.modules.get("triton") or __import__("triton")
    order = ", ".join(SDPBackend(number).name.lower() for number in torch._C._get_sdp_priority_order())
    return {
        "CUDA": str(torch.version.cuda),
        "cuDNN": str(torch.backends.cudnn.version()),
        "Triton": triton.__version__,
        "SDPA backend priority": order,
        "float32 matmul precision": torch.get_float32_matmul_precision(),
    }
