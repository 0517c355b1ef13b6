"""The page about a run shows everything and lets nothing act."""

import re
from pathlib import Path

from softlook.recipes import translate
from tests.recipes.small import translating

EVIL = '<script>alert("1")</script>\x1b[31m'


def test_what_the_data_say_is_text_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "evil.tsv"
    path.write_text("".join(f"word {n} {EVIL}\t{EVIL} {n}\n" for n in range(50)), encoding="utf-8")
    asked = translating(tmp_path).model_copy(update={"data": (path,)})
    page = (translate(asked).folder / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "\x1b" not in page
    assert "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;\\x1b[31m" in page


def test_it_fetches_nothing_and_holds_settings_scores_and_the_plot(tmp_path: Path) -> None:
    folder = translate(translating(tmp_path)).folder
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert not re.findall(r"(?:src|href)=", page)
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}
    for words in ("optim.lr", "chosen for the data", "bleu", "<svg", "all steps are done"):
        assert words in page
    assert (folder / "loss.svg").read_text(encoding="utf-8") in page
