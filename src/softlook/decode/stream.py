"""From a prompt to an answer: word by word for one, or for many at once."""

from collections.abc import Collection, Generator, Iterator, Sequence

import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.decode.captured.running import can_run, running
from softlook.decode.captured.speaker import Captured, why_not
from softlook.decode.choosing import Asked, Row, choices
from softlook.decode.picking import Pick, likeliest
from softlook.decode.row_errors import raised_for
from softlook.decode.rows import filled, filled_left
from softlook.decode.rules import Rule, ends_of
from softlook.decode.said import Answer, Reason, Token
from softlook.decode.speakers import speaker_for
from softlook.decode.speaking import Speaker, device_of
from softlook.decode.speculative import Draft, ahead
from softlook.decode.stopping import Stop

Ids = Sequence[int]
LIKELIEST = likeliest()
WORTH = 16
"""Words from which on it pays to capture a step."""


def stream(
    model: nn.Module | Speaker,
    prompt: Ids,
    *,
    source: Ids | None = None,
    pick: Pick = LIKELIEST,
    rules: Sequence[Rule] = (),
    end: int | Collection[int] = (),
    longest: int | None = None,
    stop: Stop | None = None,
    top: int = 0,
    number: int = 0,
    draft: Draft | None = None,
) -> Generator[Token, None, Reason]:
    """The words that come after a prompt, one at a time; what the generator returns at last is why there are no more.

    - `source`: what an encoder-decoder reads; the prompt is then what its answer begins with.
    - `end`: the ids that end it, which are not handed on; `longest`: the most new words, as many as there is room for
      where not told.
    - `top`: tell so many of the likeliest words with each.
    - `number`: which of several answers this is: a pick with a seed has other dice for each.
    - `draft`: guesses several words ahead, which are then read at once; the answer stays the same.

    Close it, or let it go, and what the model remembered is freed.

    >>> from softlook.decode import sample
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=16, dim=16, depth=1, heads=2)).eval()
    >>> for token in stream(model, [3, 1, 4], pick=sample(temperature=0.8, top_p=0.95, seed=1), longest=5):
    ...     assert 0 <= token.id < 10 and token.log_probability < 0
    """
    speaker = _speaker(model, None if source is None else [source])
    rows = _rows([prompt], speaker, longest, stop, [number])
    asked = Asked(pick, tuple(rules), ends_of(end), top)
    return _tokens(turns(speaker, rows, asked) if draft is None else ahead(speaker, rows[0], asked, draft), rows[0])


def generate(
    model: nn.Module | Speaker,
    prompts: Sequence[Ids],
    *,
    sources: Sequence[Ids] | None = None,
    pick: Pick = LIKELIEST,
    rules: Sequence[Rule] = (),
    end: int | Collection[int] = (),
    longest: int | None = None,
    stop: Stop | None = None,
    top: int = 0,
) -> list[Answer]:
    """What comes after each of several prompts, which need not be equally long. Each answer is what `stream` says
    of that prompt alone, with its place in the list as its number. Whoever is done leaves the batch.

    Where no token can be chosen for some rows (the model's logits are NaN or infinite, or the rules leave nothing), the
    others are answered first; then a `RowError` names the `rows` that failed and holds the `answers` of the others.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=16, dim=16, depth=1, heads=2)).eval()
    >>> [len(answer.ids) for answer in generate(model, [[3, 1, 4], [1]], longest=5)]
    [5, 5]
    """
    if sources is not None and len(sources) != len(prompts):
        raise ConfigError(f"each source wants a prompt of its own; {len(sources)} and {len(prompts)} came")
    if not prompts:
        return []
    speaker = _speaker(model, sources)
    rows = _rows(prompts, speaker, longest, stop, range(len(prompts)))
    for _ in turns(speaker, rows, Asked(pick, tuple(rules), ends_of(end), top)):
        pass
    answers = [_answer(row) for row in rows]
    errors = {row.number: row.error for row in rows if row.error is not None}
    if errors:
        raise raised_for(errors, answers)
    return [answer for answer in answers if answer is not None]


@torch.no_grad()
def turns(speaker: Speaker, rows: Sequence[Row], asked: Asked) -> Iterator[list[Token]]:
    """One word of each row that is under way, until the last one is done. The rows take them in."""
    new, lengths = filled_left([row.prompt for row in rows], speaker.device)
    if max(row.limit for row in rows) >= WORTH and why_not(speaker) is None:
        room = new.shape[1] + max(row.limit for row in rows)
        speaker = Captured(speaker, room)  # pyright: ignore[reportArgumentType]  (just asked)
    try:
        yield from _word_by_word(speaker, rows, asked, new, lengths)
    finally:
        if isinstance(speaker, Captured):
            speaker.close()


def _word_by_word(
    speaker: Speaker, rows: Sequence[Row], asked: Asked, new: Tensor, lengths: Tensor | None
) -> Iterator[list[Token]]:
    while rows:
        if isinstance(speaker, Captured) and lengths is None and speaker.state is not None and can_run(asked):
            yield from running(speaker, rows, new, asked)
            return
        scores = speaker.next(new) if lengths is None else speaker.next(new, lengths)
        found, lengths = choices(scores, [row.said() for row in rows], asked), None
        for row, token in zip(rows, found, strict=True):
            row.take(token, asked.end)
        yield [token for token in found if isinstance(token, Token)]
        going = [place for place, row in enumerate(rows) if row.going]
        if going and len(going) < len(rows):
            speaker.select(torch.tensor(going, device=speaker.device))
        rows = [rows[place] for place in going]
        new = torch.tensor([row.new[-1:] for row in rows], device=speaker.device)


def _tokens(said: Iterator[list[Token]], row: Row) -> Generator[Token, None, Reason]:
    for tokens in said:
        if tokens and row.reason != "end":
            yield tokens[0]
    if row.error is not None:
        raise row.error
    assert row.reason is not None
    return row.reason


def _answer(row: Row) -> Answer | None:
    if row.reason is None:
        return None
    heard = row.listening
    if heard is not None:
        heard.finish()
    return Answer(row.tokens, row.reason, row.end, None if heard is None else heard.shown)


def _speaker(model: nn.Module | Speaker, sources: Sequence[Ids] | None) -> Speaker:
    if not isinstance(model, nn.Module):
        if sources is not None:
            raise ConfigError("a speaker has read its source already; pass the model to have this one read")
        return model
    if model.training:
        raise ConfigError("this model is still in training mode and forgets at random. Call model.eval() first")
    if sources is None:
        return speaker_for(model)
    ids, present = filled(sources, device_of(model))
    alike = len(set(map(len, sources))) == 1
    return speaker_for(model, ids) if alike else speaker_for(model, ids, present)


def _rows(
    prompts: Sequence[Ids], speaker: Speaker, longest: int | None, stop: Stop | None, numbers: Sequence[int]
) -> list[Row]:
    rows = []
    for prompt, number in zip(prompts, numbers, strict=True):
        heard = None if stop is None else stop.listen(prompt)
        rows.append(Row(list(prompt), number, limit_of(len(prompt), speaker.context, longest), heard))
    return rows


def limit_of(prompt: int, context: int | None, longest: int | None) -> int:
    """The most new words behind a prompt of this length.

    >>> limit_of(10, 16, None), limit_of(10, None, 7)
    (6, 7)
    """
    if prompt < 1:
        raise ConfigError(
            "a prompt has at least one id. Where there is nothing to go on from, begin with the begin token"
        )
    room = None if context is None else context - prompt
    if longest is None and room is None:
        raise ConfigError("this model never has to end. Say how many words it may say: longest=")
    if room is not None and room < max(longest or 1, 1):
        raise ConfigError(
            f"{longest or 1} new words behind {prompt} do not fit into this model's {context} places. "
            f"Shorten the prompt{f', or say longest={room}' if room > 0 else ''}"
        )
    if longest is not None and longest < 1:
        raise ConfigError(f"longest is the most new words, 1 at least; {longest} came")
    return room if longest is None else longest  # pyright: ignore[reportReturnType]  (one of them is a number)
