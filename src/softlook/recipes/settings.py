"""Every setting of every task in closed schemas: the same names in Python, in a file, as a flag, in the environment.

A value that is None is chosen for the data and the device, and said; `recipes.sizing` chooses.
"""

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from softlook.train.settings import Optim, Settings, Training

Files = tuple[Path, ...]
SinkName = Literal["tensorboard", "mlflow", "wandb", "trackio", "none"]
NO_SINKS = "none"


class Tokens(Settings):
    """How text becomes ids."""

    kind: Literal["bpe", "characters", "bytes", "words"] | None = Field(
        default=None, description="pieces of words (bpe), characters, bytes or whole words; chosen where not told"
    )
    vocab: int | None = Field(default=None, ge=8, description="most tokens; chosen where not told")
    dropout: float = Field(
        default=0.0, ge=0, lt=1, description="merges of pieces left out while training, anew each time through the data"
    )
    file: Path | None = Field(default=None, description="a tokenizer.json to take instead of training one")


class Sizes(Settings):
    """How large the model is. What is not told is chosen for the data and the device."""

    dim: int | None = Field(default=None, ge=1, description="width of the vectors between blocks")
    depth: int | None = Field(default=None, ge=1, description="number of blocks, on each side where there are two")
    heads: int | None = Field(default=None, ge=1, description="heads in each block")
    hidden: int | None = Field(default=None, ge=1, description="width inside the feed-forward layers")
    dropout: float | None = Field(default=None, ge=0, lt=1, description="share dropped while training")


class TranslateSizes(Sizes):
    """How large a translator is."""

    norm: Literal["pre", "post"] = Field(
        default="pre", description="norms before each layer, or behind it as first published, which wants a warm-up"
    )


class Batch(Settings):
    """How much is learned from at once."""

    tokens: int | None = Field(default=None, ge=1, description="tokens of a batch, with padding; chosen where not told")
    longest: int | None = Field(default=None, ge=4, description="tokens of the longest example; chosen where not told")


class PairBatch(Batch):
    """How much is learned from at once, and how the loss is counted."""

    smoothing: float = Field(default=0.1, ge=0, lt=1, description="share of each target spread over all words")
    multiple: int = Field(default=1, ge=1, description="lengths are filled up to a multiple of this; 8 suits a GPU")
    agree: float = Field(
        default=0.0, ge=0, description="R-Drop: read each batch twice and ask both to agree so much; 5 is usual"
    )


class LabelBatch(Batch):
    """How much is learned from at once, and how the loss is counted."""

    smoothing: float = Field(default=0.0, ge=0, lt=1, description="share of each target spread over all classes")
    unseen: float = Field(default=0.0, ge=0, lt=1, description="share of the words that are covered up while training")
    agree: float = Field(
        default=0.0, ge=0, description="R-Drop: read each batch twice and ask both to agree so much; 1 is usual"
    )


class WordBatch(Batch):
    """How much is learned from at once, and which words are hidden."""

    hidden: float = Field(default=0.15, gt=0, lt=1, description="share of the words that are asked for")


class NearBatch(Batch):
    """How much is learned from at once, and what counts as near."""

    window: int = Field(default=5, ge=1, description="words to each side that count as neighbours")
    wrong: int = Field(default=5, ge=1, description="wrong neighbours drawn for each true one")


class Decode(Settings):
    """How answers are found when the model is tested."""

    beams: int = Field(default=5, ge=1, description="beginnings that are kept at once; 1 takes the likeliest word")
    penalty: float = Field(default=1.0, description="above 0 favours longer answers")
    checked: int = Field(default=200, ge=1, description="held-out examples translated at each look while training")
    select: Literal["loss", "bleu"] = Field(default="loss", description="which held-out score decides what is best")


class Lora(Settings):
    """Learning by thin detours around some layers, from weights that stay as they are."""

    rank: int = Field(default=0, ge=0, description="width of the detours, 8 is usual; 0: none, all weights learn")
    alpha: float | None = Field(default=None, gt=0, description="how much they count; twice the rank where not told")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="share dropped on the way into them, while training")
    targets: tuple[str, ...] = Field(
        default=("to_query", "to_value"),
        description="layers that get one, by the end of their names: to_query to_value attend.to_out feed.to_hidden",
    )


class Begun(Settings):
    """What every run is told: from what, where, and who hears of it."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True)

    data: Files = Field(default=(), description="files or folders to learn from")
    valid: Files = Field(default=(), description="held-out files; without them a part of the data is held out")
    test: Files = Field(default=(), description="files for a test at the very end")
    run: Path | None = Field(default=None, description="folder of the run; runs/<task>-<data> where not told")
    fresh: bool = Field(default=False, description="begin anew, beside a run of the same name")
    sinks: tuple[SinkName, ...] = Field(
        default=(), description="who else hears of the run, or none; TensorBoard where not told and where installed"
    )


class Task(Begun):
    """What all tasks about text are told."""

    max_bad_rows: int = Field(default=0, ge=0, description="rows that may be left out as unreadable")
    longest_line: int = Field(default=1_000_000, ge=1, description="characters of the longest line")
    from_: Path | None = Field(
        default=None,
        validation_alias="from",
        serialization_alias="from",
        description="a checkpoint, run or folder to start from",
    )
    lora: Lora = Lora()
    tokens: Tokens = Tokens()
    optim: Optim = Optim()
    training: Training = Training()


class Translate(Task):
    """Turn one text into another, as pairs show it."""

    source: str | None = Field(default=None, description="column to translate from; guessed where not told")
    target: str | None = Field(default=None, description="column to translate into; guessed where not told")
    model: Literal["transformer", "rnn_search"] = Field(default="transformer", description="kind of model")
    size: TranslateSizes = TranslateSizes()
    batch: PairBatch = PairBatch()
    decode: Decode = Decode()


class Lm(Task):
    """Say what comes next."""

    text: str | None = Field(default=None, description="column with the text, in tables")
    model: Literal["gpt", "llama", "transformer_xl", "convolution"] | None = Field(
        default=None, description="kind of model; gpt, or llama where time is short"
    )
    size: Sizes = Sizes()
    batch: Batch = Batch()


class Fill(Task):
    """Find hidden words from both sides."""

    text: str | None = Field(default=None, description="column with the text, in tables")
    pairs: bool = Field(default=False, description="also ask whether a second sentence follows the first")
    size: Sizes = Sizes()
    batch: WordBatch = WordBatch()


class Classify(Task):
    """Say which class a text belongs to."""

    text: str | None = Field(default=None, description="column with the text; guessed where not told")
    text_pair: str | None = Field(default=None, description="column with a second text, where pairs are classified")
    label: str | None = Field(default=None, description="column with the class; guessed where not told")
    pooling: Literal["first", "mean"] | None = Field(
        default=None, description="judge by a global token (first) or by the mean of all; chosen where not told"
    )
    select: Literal["accuracy", "loss"] = Field(
        default="accuracy", description="which held-out score decides what is best"
    )
    size: Sizes = Sizes()
    batch: LabelBatch = LabelBatch()


class Vectors(Task):
    """Give words vectors from the company they keep: skip-gram."""

    text: str | None = Field(default=None, description="column with the text, in tables")
    size: Sizes = Sizes()
    batch: NearBatch = NearBatch()


class TableSizes(Settings):
    """How large a table's model is. What is not told is the recipe's."""

    dim: int | None = Field(default=None, ge=1, description="width of the token of each column")
    depth: int | None = Field(default=None, ge=1, description="number of blocks")
    heads: int | None = Field(default=None, ge=1, description="heads in each block")
    hidden: int | None = Field(default=None, ge=1, description="width inside the feed-forward layers")
    members: int | None = Field(default=None, ge=1, description="members that answer together and share most weights")
    number_tokens: Literal["piecewise", "periodic", "linear"] | None = Field(
        default=None, description="how a number becomes a token"
    )
    scaling: Literal["quantile", "standard", "none"] | None = Field(
        default=None, description="what numbers go through first"
    )
    dropout: float | None = Field(default=None, ge=0, lt=1, description="share of the residuals dropped")
    attention_dropout: float | None = Field(default=None, ge=0, lt=1, description="share of the looks dropped")
    hidden_dropout: float | None = Field(default=None, ge=0, lt=1, description="share dropped inside feed-forwards")


class TableOptim(Settings):
    """How the weights of a table's model are changed. What is not told is the recipe's."""

    lr: float | None = Field(default=None, gt=0, description="learning rate")
    weight_decay: float | None = Field(default=None, ge=0, description="AdamW's pull towards nought, on matrices only")
    batch_size: int | None = Field(default=None, ge=1, description="rows a step")


class TableTraining(Settings):
    """How long a table is learned, and what is kept."""

    epochs: int | None = Field(default=None, ge=1, description="most times through the rows; else patience decides")
    patience: int | None = Field(default=None, ge=1, description="stop after so many looks without a better one")
    watch: Literal["loss", "score", "either"] | None = Field(
        default=None, description="which held-out number decides what is best; of numbers there is the loss alone"
    )
    minutes: float | None = Field(default=None, gt=0, description="stop after so long, whatever the epoch")
    memory_limit: float | None = Field(
        default=None, gt=0, description="GB that a table may take up, 1 where not told; rows beyond lie on the disk"
    )
    held_out: float = Field(default=0.2, ge=0, lt=1, description="share of the rows that is held out to stop by")
    device: str = Field(default="auto", description="auto: cuda, then mps, then cpu")
    seed: int = Field(default=0, ge=0, lt=2**32, description="of everything that is left to chance")
    save_every: float = Field(default=30.0, gt=0, description="seconds between two checkpoints")
    keep: int = Field(default=2, ge=1, description="checkpoints that are kept")


class Table(Begun):
    """Learn one column of a table from the others."""

    target: tuple[str, ...] = Field(default=(), description="the column to predict; several, if they are numbers")
    answers: Literal["classes", "numbers"] | None = Field(
        default=None, description="what the target holds; seen from the data where not told"
    )
    ignore: tuple[str, ...] = Field(default=(), description="columns to leave out")
    kinds: tuple[str, ...] = Field(
        default=(), description="what columns are, where it is seen wrongly: zip=category note=text"
    )
    ordinal: tuple[str, ...] = Field(default=(), description="values in their order, lowest first: size=S,M,L")
    class_weights: tuple[str, ...] = Field(default=(), description="balanced, or what each class weighs: yes=3 no=1")
    estimator: Literal["ft", "tab"] = Field(
        default="ft", description="FT-Transformer, every column a token; or TabTransformer, every category one"
    )
    recipe: Literal["ours", "paper"] = Field(default="ours", description="our defaults, or those of the papers")
    no_baseline: bool = Field(default=False, description="train no boosted trees and no linear model to compare with")
    size: TableSizes = TableSizes()
    optim: TableOptim = TableOptim()
    training: TableTraining = TableTraining()


class Tune(Table):
    """Search for settings of a table's model."""

    trials: int = Field(default=20, ge=1, description="models that are tried")
    minutes: float | None = Field(default=None, gt=0, description="begin no trial after so long, all of them together")


TASKS: dict[str, type[Begun]] = {
    "translate": Translate,
    "lm": Lm,
    "fill": Fill,
    "classify": Classify,
    "vectors": Vectors,
    "table": Table,
}
FILES = {"data", "valid", "test"}
"""Settings that are lists of files."""
ASIDE = {"data", "valid", "test", "run", "fresh", "sinks", "from", "decode.beams", "decode.penalty"}
ASIDE |= {"no_baseline", "training.epochs"}
"""Settings that a run may change, or that are known by their content."""
