"""`softlook tokenizer`: make one from text, and look at how it cuts."""

import logging
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from softlook.base.excerpt import escaped
from softlook.cli.talk import Result
from softlook.data import documents
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens.training import Kind

log = logging.getLogger("softlook.cli")


def train(
    *data: Path,
    to: Annotated[Path, Parameter(help="the new file; nothing is overwritten")] = Path("tokenizer.json"),
    kind: Annotated[Kind, Parameter(help="pieces of words (bpe), characters, bytes or whole words")] = "bpe",
    vocab: Annotated[int, Parameter(help="most tokens")] = 8000,
) -> Result:
    """Make a tokenizer from one's own text."""
    from softlook.weights.folders import refuse_taken, told  # noqa: PLC0415  (torch is loaded only now)

    refuse_taken(to)
    made = train_tokenizer((text.text for text in documents(data)), kind=kind, vocab=vocab)
    with told("write", to):
        to.write_text(made.to_str(pretty=True), encoding="utf-8")
    log.info(f"{made.get_vocab_size():,} tokens. Use it with --tokens.file {to}")
    return Result(to, {"vocab": made.get_vocab_size(), "kind": kind})


def show(tokenizer: Path, *text: str) -> Result:
    """How a tokenizer cuts a text: each piece with its id. TOKENIZER is a tokenizer.json, or a run."""
    from softlook.weights import read_tokenizer  # noqa: PLC0415

    made = TextTokenizer(read_tokenizer(tokenizer))
    words = " ".join(text)
    ids = made.encode([words])[0]
    pieces = [made.tokenizer.id_to_token(number) or "" for number in ids]
    lines = [f"{number:7}  {escaped(piece)}" for number, piece in zip(ids, pieces, strict=True)]
    facts = {"vocab": made.vocab, "ids": ids, "pieces": pieces, "again": made.decode(ids)}
    return Result(tokenizer, facts, "\n".join(lines) or f"{made.vocab:,} tokens")
