"""Labels of the documents of a language model, each with a token of its own."""

from softlook.base.errors import ConfigError, DataError
from softlook.data import TextExample
from softlook.recipes.config.schema import CausalLMConfig
from softlook.recipes.text.corpus import Corpus
from softlook.tokens import TextTokenizer
from softlook.tokens.label_tokens import add_label_tokens

MAX_LABELS = 1000


def with_labels(tokenizer: TextTokenizer, corpus: Corpus[TextExample], config: CausalLMConfig) -> TextTokenizer:
    """The tokenizer with a token for each label, if the config names a column of labels."""
    if config.label is not None:
        add_label_tokens(tokenizer.tokenizer, find_labels(corpus, config))
    return tokenizer


def find_labels(corpus: Corpus[TextExample], config: CausalLMConfig) -> list[str]:
    """The different labels of the training texts."""
    if config.init_from is not None:
        raise ConfigError("--label adds a token for each class, which pretrained weights lack: remove --init-from")
    labels: set[str] = set()
    for example in corpus.train:
        labels.add(example.label or "")
        if len(labels) > MAX_LABELS:
            raise DataError(
                f"column {config.label!r:.80} has more than {MAX_LABELS} different labels, such as {min(labels)!r:.80}",
                help="name a column with few repeated values",
            )
    return sorted(labels - {""})
