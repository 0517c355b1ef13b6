"""Label tokens are special tokens: one id each, never parsed from text, kept in the file."""

from tokenizers import Tokenizer

from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens.label_tokens import add_label_tokens, label_ids


def test_each_label_has_one_id_that_text_cannot_write() -> None:
    tokenizer = TextTokenizer(train_tokenizer(["a fine <label:good> film"], model_type="characters"))
    size = tokenizer.vocab_size
    add_label_tokens(tokenizer.tokenizer, ["good", "so bad"])
    assert tokenizer.vocab_size == size + 2 and set(label_ids(tokenizer.tokenizer)) == {"good", "so bad"}
    assert label_ids(tokenizer.tokenizer)["good"] not in tokenizer.encode("<label:good>")
    assert tokenizer.decode([label_ids(tokenizer.tokenizer)["good"], *tokenizer.encode("fine")]) == "fine"


def test_labels_are_kept_in_the_file() -> None:
    tokenizer = train_tokenizer(["fine"], model_type="bytes")
    add_label_tokens(tokenizer, ["x > y", "β"])
    assert label_ids(Tokenizer.from_str(tokenizer.to_str())) == label_ids(tokenizer)
