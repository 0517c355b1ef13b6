"""BLEU and chrF as sacreBLEU counts them, with the signature that says how."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

if find_spec("sacrebleu") is None:
    raise ModuleNotFoundError("translations are scored by sacreBLEU: pip install sacrebleu")

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


def bleu(said: Sequence[str], wanted: Sequence[str]) -> float:
    """BLEU of 0 to 100.

    >>> round(bleu(["a b c d e"], ["a b c d e"]))
    100
    """
    return BLEU().corpus_score(list(said), [list(wanted)]).score


def scored(said: Sequence[str], wanted: Sequence[str]) -> dict[str, Any]:
    """BLEU, lower-cased BLEU and chrF, with their signatures."""
    plain, lower, letters = BLEU(), BLEU(lowercase=True), CHRF()
    counts = [metric.corpus_score(list(said), [list(wanted)]).score for metric in (plain, lower, letters)]
    return {
        "bleu": round(counts[0], 2),
        "bleu_lowercase": round(counts[1], 2),
        "chrf": round(counts[2], 2),
        "bleu_signature": str(plain.get_signature()),
        "chrf_signature": str(letters.get_signature()),
    }
