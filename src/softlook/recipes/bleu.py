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
    """BLEU, also lower-cased and by words as they stand (for text that is cut into words already), and chrF."""
    plain, letters = BLEU(), CHRF()
    metrics = {
        "bleu": plain,
        "bleu_lowercase": BLEU(lowercase=True),
        "bleu_as_cut": BLEU(tokenize="none", force=True),
        "chrf": letters,
    }
    counts = {name: metric.corpus_score(list(said), [list(wanted)]).score for name, metric in metrics.items()}
    return {
        **{name: round(count, 2) for name, count in counts.items()},
        "bleu_signature": str(plain.get_signature()),
        "chrf_signature": str(letters.get_signature()),
    }
