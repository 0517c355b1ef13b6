"""What was measured, said twice: as plain text while it happens, as a Markdown file for the documentation."""

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
    """Written anew after every line, so that a run that is cut short leaves what it found."""

    def __init__(self, device: str, command: str, folder: Path = FOLDER, topic: str = "") -> None:
        self.hardware = torch.cuda.get_device_name() if device == "cuda" else cpu_name()
        slug = re.sub(r"[^a-z0-9]+", "-", f"{self.hardware} {topic}".lower()).strip("-")
        self.path = folder / f"{date.today().isoformat()}-{slug}.md"
        self.short: list[str] = []
        self.lines: list[str] = []
        self.facts = _facts(self.hardware, device, command)
        print("\n".join(f"{name}: {fact}" for name, fact in self.facts.items()), flush=True)

    def section(self, title: str, *remarks: str) -> None:
        self.lines += ["", f"## {title}", ""]
        print(f"\n== {title}", flush=True)
        for remark in remarks:
            self.say(remark)

    def say(self, remark: str) -> None:
        self.lines += [remark, ""]
        print(remark, flush=True)
        self.write()

    def in_short(self, remark: str) -> None:
        """A line for the head of the file."""
        self.short.append(f"- {remark}")
        print(f"-> {remark}", flush=True)
        self.write()

    def table(self, *heads: str) -> "Table":
        return Table(self, heads)

    def write(self) -> None:
        head = [
            f"# {self.hardware}, {date.today().isoformat()}",
            "",
            "Written by the scripts in `benchmarks/`; not edited by hand.",
            "",
            *(f"- {name}: {fact}" for name, fact in self.facts.items()),
            "",
            "## In short",
            "",
            *self.short,
        ]
        text = re.sub(r"\n{3,}", "\n\n", "\n".join([*head, *self.lines])).rstrip() + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text, encoding="utf-8")


class Table:
    """Rows appear as soon as they are known."""

    def __init__(self, report: Report, heads: Sequence[str]) -> None:
        self.report = report
        self.widths = [max(len(head) + 1, 8) for head in heads]
        self.widths[0] = max(self.widths[0], 30)
        report.lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), ""]
        self.place = len(report.lines) - 1
        print(self._plain(heads), flush=True)

    def add(self, *cells: object) -> None:
        words = [_word(cell) for cell in cells]
        self.report.lines.insert(self.place, f"| {' | '.join(words)} |")
        self.place += 1
        print(self._plain(words), flush=True)
        self.report.write()

    def _plain(self, words: Sequence[str]) -> str:
        return " ".join(word.ljust(width) for word, width in zip(words, self.widths, strict=True)).rstrip()


def ms(seconds: float | None) -> str:
    """Milliseconds, to three digits that matter."""
    if seconds is None:
        return "–"
    return f"{seconds * 1e3:#.3g}".rstrip(".") if seconds < 1 else f"{seconds * 1e3:.0f}"


def megabytes(count: float | None) -> str:
    return "–" if count is None else f"{count / 2**20:.1f}" if count < 100 * 2**20 else f"{count / 2**20:.0f}"


def _word(cell: object) -> str:
    if cell is None:
        return "–"
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def cpu_name() -> str:
    """The processor and how many cores of it there are, without the marks of its maker."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    name = re.sub(r"\((R|TM)\)|@.*| CPU| \d+-Core Processor", "", name, flags=re.IGNORECASE)
    return f"{name.strip()}, {os.cpu_count()} cores"


def _facts(hardware: str, device: str, command: str) -> dict[str, str]:
    facts = {
        "hardware": hardware,
        "command": f"`{command}`",
        "python": platform.python_version(),
        "torch": f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}",
        "threads": str(torch.get_num_threads()),
        "load of the machine before the run (0 is quiet)": f"{os.getloadavg()[0]:.1f}",
    }
    if device == "cuda":
        facts |= _cuda_facts()
    return facts


def _cuda_facts() -> dict[str, str]:
    triton = sys.modules.get("triton") or __import__("triton")
    order = ", ".join(SDPBackend(number).name.lower() for number in torch._C._get_sdp_priority_order())
    return {
        "CUDA": str(torch.version.cuda),
        "cuDNN": str(torch.backends.cudnn.version()),
        "Triton": triton.__version__,
        "order in which torch tries its kernels": order,
        "float32 matrix products": torch.get_float32_matmul_precision(),
    }
