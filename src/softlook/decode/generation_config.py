"""generation_config.json of Hugging Face's: fields that are applied, fields that are refused, and irrelevant ones."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from softlook.decode.habits import BEAMS, MOST_BEAMS, MOST_WORDS, Habits
from softlook.weights.beside import GENERATION
from softlook.weights.runs import BEST, SETTINGS, read_sealed
from softlook.weights.schema import read_json

HONOURED = frozenset({
    "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "decoder_start_token_id", "early_stopping",
    "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "eos_token_id", "exponential_decay_length_penalty",
    "forced_bos_token_id", "forced_eos_token_id", "length_penalty", "max_length", "max_new_tokens", "min_length",
    "min_new_tokens", "no_repeat_ngram_size", "num_beams", "renormalize_logits", "repetition_penalty",
    "suppress_tokens",
})  # fmt: skip
"""Fields whose values are applied to translations."""

IRRELEVANT = frozenset({
    # how the same tokens are computed, guessed ahead or held in memory
    "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight", "assistant_lookbehind",
    "cache_config", "cache_implementation", "compile_config", "continuous_batching_config", "disable_compile",
    "is_assistant", "low_memory", "max_cache_len", "max_matching_ngram_size", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "prefill_chunk_size", "prompt_lookup_num_tokens", "speculation_type",
    "target_lookbehind", "use_cache", "use_mtp",
    # what is returned beside them
    "num_return_sequences", "output_attentions", "output_hidden_states", "output_logits", "output_scores",
    "return_dict_in_generate",
    # parts of sampling, which only `do_sample` turns on
    "epsilon_cutoff", "eta_cutoff", "min_p", "temperature", "top_h", "top_k", "top_p", "typical_p",
    # a pad token fills rows up and is never seen; invalid logits fail their row; where the file comes from
    "_from_model_config", "pad_token_id", "remove_invalid_values", "transformers_version",
})  # fmt: skip
"""Fields that do not change which tokens a translation has."""

REFUSED: dict[str, Callable[[Any], bool]] = {
    "constraints": bool,
    "diversity_penalty": bool,
    "do_sample": bool,
    "dola_layers": lambda value: value is not None,
    "force_words_ids": bool,
    "guidance_scale": lambda value: value not in (None, 1),
    "max_time": lambda value: value is not None,
    "num_beam_groups": lambda value: value not in (None, 0, 1),
    "penalty_alpha": bool,
    "sequence_bias": bool,
    "stop_strings": bool,
    "token_healing": bool,
    "watermarking_config": bool,
}
"""Fields that softlook does not apply, and which of their values would change a translation."""


def habits_in(folder: Path, theirs: Mapping[str, Any]) -> Habits:
    """The habits of what lies in a folder: how a run was tested, or what Hugging Face's files say.

    As theirs do: config.json has a say only where there is no generation_config.json.
    """
    if theirs:
        return told_by(read_json(folder / GENERATION) if (folder / GENERATION).is_file() else theirs)
    kept = read_sealed(folder / SETTINGS) if (folder / BEST).is_file() and (folder / SETTINGS).is_file() else {}
    values = kept.get("values")
    fields = _Fields(values if isinstance(values, dict) else {})
    beams = fields.whole("decode.beams", most=MOST_BEAMS) or BEAMS
    return Habits(beams=beams, penalty=fields.number("decode.penalty", 1.0))


def told_by(theirs: Mapping[str, Any]) -> Habits:
    """The habits that a generation config describes, as `generate` of Hugging Face's would apply it.

    What cannot be applied is listed in `refused`; `Habits.check` raises it where a translation is asked for.

    >>> told_by({"num_beams": 4, "bad_words_ids": [[9]], "forced_eos_token_id": 0, "max_length": 512}).longest
    511
    >>> told_by({"num_beams": 2, "guidance_scale": 1.5}).refused
    ('guidance_scale: 1.5',)
    """
    fields = _Fields(theirs)
    longest = fields.whole("max_new_tokens") or fields.whole("max_length", less=1)
    shortest = fields.whole("min_new_tokens") if theirs.get("min_new_tokens") is not None else 0
    shortest = shortest or fields.whole("min_length", less=1)  # lengths count what an answer begins with, one token
    return Habits(
        beams=fields.whole("num_beams", most=MOST_BEAMS) or 1,
        penalty=fields.number("length_penalty", 1.0),
        repetition=fields.number("repetition_penalty", 1.0, above=0.0),
        repeats=fields.whole("no_repeat_ngram_size"),
        never=fields.words("bad_words_ids"),
        shortest=shortest,
        longest=longest or None,
        first=next(iter(fields.ids("forced_bos_token_id", most=1)), None),
        last=fields.ids("forced_eos_token_id"),
        anew=theirs.get("renormalize_logits") is True,
        suppressed=fields.ids("suppress_tokens"),
        suppressed_first=fields.ids("begin_suppress_tokens"),
        source_repeats=fields.whole("encoder_no_repeat_ngram_size"),
        source_repetition=fields.number("encoder_repetition_penalty", 1.0, above=0.0),
        decay=fields.decay("exponential_decay_length_penalty"),
        early=fields.early(),
        refused=tuple(fields.refused),
    )


class _Fields:
    """Values of a generation config, each checked as it is read; those that cannot be applied are `refused`."""

    def __init__(self, theirs: Mapping[str, Any]) -> None:
        self.theirs = theirs
        self.refused = [_shown(name, theirs[name]) for name, is_set in REFUSED.items() if is_set(theirs.get(name))]

    def whole(self, name: str, *, less: int = 0, most: int = 1 << 40) -> int:
        """A number of 0 or more, 0 where it is not set."""
        value = self.theirs.get(name)
        if value is None or (type(value) is int and 0 <= value <= most):
            return max((value or 0) - less, 0)
        return self._refuse(name, 0)

    def number(self, name: str, usual: float, *, above: float = -math.inf) -> float:
        value = self.theirs.get(name)
        if value is None:
            return usual
        if type(value) in (int, float) and math.isfinite(value) and value > above:
            return float(value)
        return self._refuse(name, usual)

    def ids(self, name: str, most: int = MOST_WORDS) -> tuple[int, ...]:
        """One id or several."""
        value = self.theirs.get(name)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if len(ids) <= most and all(type(id) is int and id >= 0 for id in ids):
            return tuple(ids)
        return self._refuse(name, ())

    def words(self, name: str) -> tuple[tuple[int, ...], ...]:
        rows = self.theirs.get(name)
        rows = [] if rows is None else rows
        if isinstance(rows, list) and len(rows) <= MOST_WORDS and all(map(_is_word, rows)):
            return tuple(map(tuple, rows))
        return self._refuse(name, ())

    def decay(self, name: str) -> tuple[int, float] | None:
        value = self.theirs.get(name)
        if value is None:
            return None
        if isinstance(value, list | tuple) and len(value) == 2:
            start, factor = value
            if type(start) is int and start >= 0 and type(factor) in (int, float) and 0 < factor < math.inf:
                return start, float(factor)
        return self._refuse(name, None)

    def early(self) -> Any:
        value = self.theirs.get("early_stopping")
        if value is None:
            return False
        return value if isinstance(value, bool) or value == "never" else self._refuse("early_stopping", False)

    def _refuse(self, name: str, instead: Any) -> Any:
        self.refused.append(_shown(name, self.theirs[name]))
        return instead


def _is_word(row: Any) -> bool:
    return isinstance(row, list) and bool(row) and all(type(id) is int and id >= 0 for id in row)


def _shown(name: str, value: Any) -> str:
    return f"{name}: {value!r:.60}"
