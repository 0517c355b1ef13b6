"""Translation with an encoder-decoder: greedy decoding, beam search, alignments."""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import nn

from softlook.base.errors import ConfigError
from softlook.decode import Hypothesis, SequenceView, beam_search, create_session, generate
from softlook.decode.alignment import Alignment as Alignment
from softlook.decode.alignment import build_alignment, cross_attention_maps
from softlook.decode.generation_config import (
    MAX_BEAMS,
    GenerationConfig,
    default_max_new_tokens,
    hypothesis_from_tokens,
)
from softlook.decode.logits_processors import as_id_set
from softlook.decode.sentences import join_translations
from softlook.decode.token_tensors import pad_right
from softlook.decode.translation import ScoredTranslation as ScoredTranslation
from softlook.decode.translation import max_source_length, merge_translations, split_source
from softlook.recipes.inference.pipeline import Pipeline, TextInput, batch_by_length, to_inputs
from softlook.tokens import TextTokenizer

log = logging.getLogger("softlook.recipes")
MIN_BATCH_TOKENS, MAX_BATCH_TOKENS = 8192, 262_144
"""Source tokens per batch, over all beams: on a CPU, and at most on a GPU."""
BYTES_PER_TOKEN = 1 << 19
"""GPU memory per source token of a batch."""
MAX_BATCH_SIZE = 1024
ALIGNMENT_BATCH_SIZE = 32
DEFAULT_MAX_LENGTH = 8192
"""Maximum output length if neither the model nor its generation config limits it."""
DEFAULT_GENERATION_CONFIG = GenerationConfig()


@dataclass(frozen=True)
class TranslationResult:
    """The translations of a text, best first; none for an empty text."""

    source: str
    candidates: list[ScoredTranslation]

    @property
    def text(self) -> str:
        return self.candidates[0].text if self.candidates else ""


def translate(
    pipeline: Pipeline,
    texts: Iterable[str | TextInput],
    *,
    num_beams: int | None = None,
    length_penalty: float | None = None,
    n_best: int = 1,
    with_alignment: bool = False,
    split_sentences: bool = False,
) -> list[TranslationResult]:
    """Translate texts, in their order; each result is independent of the others. All of them are kept in memory.

    A text with more tokens than those in training, or than the model's context, is translated sentence by sentence;
    `split_sentences` does so with every text, for models that were trained on single sentences.

    `num_beams` and `length_penalty` default to the model's generation config, whose other fields apply as in Hugging
    Face's `generate`; an unsupported one raises an error.

    >>> from softlook.recipes.inference import load_pipeline
    >>> translate(load_pipeline("dates", device="cpu"), ["jeudi 3 mars 2022", "le 1er mai 1998"])[0].text
    '2022-03-03'
    """
    config, special = pipeline.generation_config, pipeline.special_tokens
    config.check_supported(beam_search=num_beams is not None)
    num_beams = max(config.num_beams, n_best) if num_beams is None else num_beams
    if not 1 <= num_beams <= MAX_BEAMS:
        raise ConfigError(f"expected num_beams from 1 to {MAX_BEAMS}, got {num_beams}")
    if not 1 <= n_best <= num_beams:
        raise ConfigError(f"n_best {n_best} needs at least as many beams, got {num_beams}: --num-beams {n_best}")
    inputs = to_inputs(texts)
    nonempty = [number for number, item in enumerate(inputs) if item.text.strip()]
    sources = _split(pipeline.require("translate"), [inputs[number] for number in nonempty], split_sentences)
    rows = _encode(pipeline, [item._replace(text=part) for item, parts in sources for part in parts])
    hypotheses = search_translations(
        pipeline.model,
        rows,
        bos_id=special.start[0],
        eos_ids=special.eos,
        num_beams=num_beams,
        length_penalty=config.length_penalty if length_penalty is None else length_penalty,
        config=config,
    )
    found = iter(_decode(pipeline, rows, [several[:n_best] for several in hypotheses], with_alignment))
    merged = [merge_translations(parts, list(islice(found, len(parts)))) for _, parts in sources]
    by_number = dict(zip(nonempty, merged, strict=True))
    return [TranslationResult(item.text, by_number.get(number, [])) for number, item in enumerate(inputs)]


def translate_texts(
    model: nn.Module,
    tokenizer: TextTokenizer,
    texts: Sequence[str],
    *,
    num_beams: int = 1,
    length_penalty: float = 1.0,
    max_length: int | None = None,
) -> list[str]:
    """The best translation of each text, by a model that softlook trained.

    A text with more tokens than `max_length`, or than the model's context, is translated sentence by sentence.
    """
    max_tokens = max_source_length(model, max_length) - 1
    sources = [split_source(tokenizer, text, max_tokens) for text in texts]
    stripped = [part.strip() if len(parts) > 1 else part for parts in sources for part in parts]
    rows = [[*ids, tokenizer.eos_id] for ids in tokenizer.encode(stripped)]
    hypotheses = search_translations(
        model,
        rows,
        bos_id=tokenizer.bos_id,
        eos_ids=tokenizer.eos_id,
        num_beams=num_beams,
        length_penalty=length_penalty,
    )
    translations = iter([tokenizer.decode(several[0].ids) for several in hypotheses])
    return [join_translations(parts, list(islice(translations, len(parts)))) for parts in sources]


def search_translations(
    model: nn.Module,
    sources: Sequence[Sequence[int]],
    *,
    bos_id: int,
    eos_ids: int | Collection[int],
    num_beams: int = 1,
    length_penalty: float = 1.0,
    config: GenerationConfig = DEFAULT_GENERATION_CONFIG,
) -> list[list[Hypothesis]]:
    """The hypotheses for each source, best first: as many as beams, or one of greedy decoding.

    Of the generation config, the logits processors, length limits and early stopping apply.
    """
    device = next(model.parameters()).device
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for batch in make_batches([len(row) for row in sources], num_beams, max_batch_tokens(device)):
        rows = [sources[number] for number in batch]
        session = create_session(model, *pad_right(rows, device))
        max_tokens = min(config.max_tokens_for(len(rows[0])), (session.max_length or DEFAULT_MAX_LENGTH) - 1)

        def source_of(sequence: SequenceView, rows: Sequence[Sequence[int]] = rows) -> Sequence[int]:
            return rows[sequence.index]

        options: dict[str, Any] = {
            "eos_ids": eos_ids,
            "max_new_tokens": max_tokens,
            "logits_processors": config.logits_processors(max_tokens, tuple(as_id_set(eos_ids)), source_of),
        }
        prompts = [[bos_id]] * len(rows)
        if num_beams == 1:
            outputs = generate(session, prompts, **options)
            several = [[hypothesis_from_tokens(one.tokens, one.eos_token, length_penalty)] for one in outputs]
        else:
            options |= {"length_penalty": length_penalty, "early_stopping": config.early_stopping}
            several = beam_search(session, prompts, num_beams=num_beams, **options)
        for number, hypotheses in zip(batch, several, strict=True):
            found[number] = [replace(one, truncated=config.is_truncated(one, max_tokens)) for one in hypotheses]
    return found


def max_batch_tokens(device: torch.device) -> int:
    """Source tokens per batch, over all beams.

    >>> max_batch_tokens(torch.device("cpu"))
    8192
    """
    if device.type != "cuda":
        return MIN_BATCH_TOKENS
    memory = torch.cuda.get_device_properties(device).total_memory
    return max(MIN_BATCH_TOKENS, min(MAX_BATCH_TOKENS, memory // BYTES_PER_TOKEN))


def make_batches(lengths: Sequence[int], num_beams: int, max_tokens: int) -> Iterator[list[int]]:
    """Batches of texts of similar length, with the same limit of new tokens, longest first.

    >>> list(make_batches([3, 9, 2, 8], num_beams=2, max_tokens=36))
    [[1], [3, 0], [2]]
    """
    limits = [default_max_new_tokens(length) for length in lengths]
    sizes = [length * num_beams for length in lengths]
    return batch_by_length(lengths, limits, sizes, max_tokens=max_tokens, max_size=MAX_BATCH_SIZE)


def _split(pipeline: Pipeline, inputs: Sequence[TextInput], split_sentences: bool) -> list[tuple[TextInput, list[str]]]:
    """Each text with the parts that are translated one by one; most texts are one part."""
    special = pipeline.special_tokens
    max_length = max_source_length(pipeline.model, pipeline.max_length)
    max_tokens = max_length - len(special.prefix) - len(special.suffix)
    sources = [
        (item, split_source(pipeline.tokenizer, item.text.strip(), max_tokens, split_all_sentences=split_sentences))
        for item in inputs
    ]
    counts = [len(parts) for _, parts in sources if len(parts) > 1]
    if counts and not split_sentences:
        subject = "1 text has" if len(counts) == 1 else f"{len(counts):,} texts have"
        log.info(f"{subject} more than {max_length:,} tokens: translating {sum(counts):,} parts, by sentence.")
    return sources


def _encode(pipeline: Pipeline, inputs: Sequence[TextInput]) -> list[list[int]]:
    """Source ids with special tokens."""
    special = pipeline.special_tokens
    if not special.start or not special.eos:
        raise ConfigError(f"{pipeline.name} has no decoder start token or no EOS token")
    encoded = pipeline.tokenizer.encode([item.text.strip() for item in inputs])
    return [[*special.prefix, *ids, *special.suffix] for ids in encoded]


def _decode(
    pipeline: Pipeline, rows: Sequence[Sequence[int]], found: Sequence[Sequence[Hypothesis]], with_alignment: bool
) -> list[list[ScoredTranslation]]:
    pairs = [(row, hypothesis) for row, several in zip(rows, found, strict=True) for hypothesis in several]
    alignments: Sequence[Alignment | None] = [None] * len(pairs)
    if with_alignment:
        alignments = compute_alignments(pipeline, [row for row, _ in pairs], [one.ids for _, one in pairs])
    translations = iter(
        ScoredTranslation(
            pipeline.tokenizer.decode(one.ids), one.score, one.logprob, alignment, "length" if one.truncated else "eos"
        )
        for (_, one), alignment in zip(pairs, alignments, strict=True)
    )
    return [[next(translations) for _ in several] for several in found]


def compute_alignments(
    pipeline: Pipeline, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[Alignment]:
    """Cross-attention alignments of sources, with their special tokens, and targets."""
    alignments: list[Alignment] = []
    special = pipeline.special_tokens
    for start in range(0, len(sources), ALIGNMENT_BATCH_SIZE):
        span = slice(start, start + ALIGNMENT_BATCH_SIZE)
        maps = cross_attention_maps(pipeline.model, sources[span], [[*special.start, *ids] for ids in targets[span]])
        for weights, source, target in zip(maps, sources[span], targets[span], strict=True):
            alignments.append(build_alignment(pipeline.tokenizer, special, weights[: len(target)], source, target))
    return alignments


def with_languages(pipeline: Pipeline, source: str | None = None, target: str | None = None) -> Pipeline:
    """The same multilingual model for another language pair; default: as in its files.

    A language is named by its token: "en_XX" in mBART, "eng_Latn" in NLLB, "en" or "__en__" in M2M-100. The target's
    token is forced as the first of every output; the source's is a special token around the text.
    """
    special, config = pipeline.special_tokens, pipeline.generation_config
    if target is not None:
        config = replace(config, forced_bos_token_id=language_token(pipeline, target))
    if source is not None:
        token = language_token(pipeline, source)
        prefix, suffix = (_replace_language(pipeline, ids, token) for ids in (special.prefix, special.suffix))
        if (prefix, suffix) == (special.prefix, special.suffix) and token not in (*prefix, *suffix):
            raise ConfigError(f"the tokenizer of {pipeline.name} adds no language token; no source can be set")
        special = replace(special, prefix=prefix, suffix=suffix)
    return replace(pipeline, special_tokens=special, generation_config=config)


def language_token(pipeline: Pipeline, language: str) -> int:
    """The id of a language's token."""
    added = pipeline.tokenizer.tokenizer.get_added_tokens_decoder()
    special = {token.content: id for id, token in added.items() if token.special}
    found = next((special[name] for name in (language, f"__{language}__") if name in special), None)
    if found is None:
        known = ", ".join(sorted(name for name in special if _is_language(name))[:8])
        raise ConfigError(
            f"{pipeline.name} has no special token for the language {language!r:.40}. "
            + (f"It has {known}, ..." if known else "It has no language tokens.")
        )
    return found


def _replace_language(pipeline: Pipeline, ids: Sequence[int], token: int) -> tuple[int, ...]:
    """The same special tokens with another language token."""
    tokenizer = pipeline.tokenizer.tokenizer
    return tuple(token if _is_language(tokenizer.id_to_token(id) or "") else id for id in ids)


def _is_language(token: str) -> bool:
    """Whether a special token is a language token.

    >>> [_is_language(token) for token in ("en_XX", "__en__", "eng_Latn", "</s>", "<mask>", "[CLS]")]
    [True, True, True, False, False, False]
    """
    return token.replace("_", "").isalpha() and "_" in token
