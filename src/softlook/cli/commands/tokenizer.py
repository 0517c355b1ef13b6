"""`softlook tokenizer`: train or inspect a tokenizer."""

import logging
import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from softlook.base.errors import escape_control
from softlook.cli.activity import activity
from softlook.cli.console import CommandResult
from softlook.cli.next_steps import next_steps
from softlook.cli.options import quote
from softlook.data import read_documents
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens.training import TokenizerModel

log = logging.getLogger("softlook.cli")


def train(
    *data: Annotated[Path, Parameter(help="text files or folders")],
    to: Annotated[Path, Parameter(help="new file; an existing one is not overwritten")] = Path("tokenizer.json"),
    model_type: Annotated[TokenizerModel, Parameter(help="BPE, characters, bytes or words")] = "bpe",
    vocab_size: Annotated[int, Parameter(help="maximum number of tokens")] = 8000,
) -> CommandResult:
    """Train a tokenizer on text files."""
    from softlook.weights.atomic_folder import check_not_exists, disk_errors  # noqa: PLC0415  (imports torch)

    check_not_exists(to)
    texts = (document.text for document in read_documents(data))
    with activity("training the tokenizer"):
        tokenizer = train_tokenizer(texts, model_type=model_type, vocab_size=vocab_size)
    with disk_errors("write", to):
        to.write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    size = tokenizer.get_vocab_size()
    log.info(f"A tokenizer with {size:,} tokens.")
    files, file = shlex.join(map(str, data)), quote(to)
    log.info(
        next_steps(
            (f'softlook tokenizer show {file} "..."', "the tokens of a text"),
            (f"softlook train lm --data {files} --tokenizer.file {file}", "train a model with it"),
        )
    )
    return CommandResult(to, {"vocab_size": size, "model_type": model_type})


def show(
    tokenizer: Annotated[Path, Parameter(help="tokenizer.json, or a run directory")],
    /,
    *text: Annotated[str, Parameter(help="text to tokenize")],
) -> CommandResult:
    """Print the tokens and ids of a text."""
    from softlook.weights import read_tokenizer  # noqa: PLC0415  (imports torch)

    loaded = TextTokenizer(read_tokenizer(tokenizer))
    ids = loaded.encode([" ".join(text)])[0]
    tokens = [loaded.tokenizer.id_to_token(id) or "" for id in ids]
    lines = [f"{id:7}  {escape_control(token)}" for id, token in zip(ids, tokens, strict=True)]
    details = {"vocab_size": loaded.vocab_size, "ids": ids, "tokens": tokens, "decoded": loaded.decode(ids)}
    return CommandResult(tokenizer, details, "\n".join(lines) or f"{loaded.vocab_size:,} tokens")
