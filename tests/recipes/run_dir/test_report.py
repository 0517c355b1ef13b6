"""The HTML report."""

import re
from pathlib import Path

from softlook.recipes import train_translation
from tests.recipes.small import translation_config

MALICIOUS = '<script>alert("1")</script>\x1b[31m'


def test_data_is_escaped_in_the_report(tmp_path: Path) -> None:
    path = tmp_path / "evil.tsv"
    path.write_text("".join(f"word {n} {MALICIOUS}\t{MALICIOUS} {n}\n" for n in range(50)), encoding="utf-8")
    config = translation_config(tmp_path).model_copy(update={"data": (path,)})
    page = (train_translation(config).run_dir / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "\x1b" not in page
    assert "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;\\x1b[31m" in page


def test_the_report_is_self_contained_and_complete(tmp_path: Path) -> None:
    run_dir = train_translation(translation_config(tmp_path)).run_dir
    page = (run_dir / "report.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert not re.findall(r"(?:src|href)=", page)
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}
    for text in ("optim.lr", "auto", "bleu", "<svg", "max_steps reached"):
        assert text in page
    assert (run_dir / "loss.svg").read_text(encoding="utf-8") in page
