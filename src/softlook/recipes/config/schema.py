"""Configuration schemas of text tasks.

The field names are the same in Python, in a TOML file, as command-line flags and as environment variables. A value of
None is selected for the data and the device by `softlook.recipes.config.autosize`.
"""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from softlook.train.config import BaseConfig, OptimizerConfig, TrainingConfig

Files = tuple[Path, ...]
LoggerName = Literal["tensorboard", "mlflow", "wandb", "trackio", "none"]
NO_LOGGERS = "none"


class TokenizerConfig(BaseConfig):
    """How text is tokenized."""

    type: Literal["bpe", "characters", "bytes", "words"] | None = Field(
        default=None, description="BPE, characters, bytes or whole words; default: selected for the data"
    )
    vocab_size: int | None = Field(
        default=None, ge=8, description="maximum vocabulary size; default: selected for the data"
    )
    lowercase: bool = Field(default=False, description="convert all text to lower case")
    bpe_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="BPE dropout: probability of skipping a merge, resampled every epoch"
    )
    file: Path | None = Field(default=None, description="a tokenizer.json to use instead of training a tokenizer")


class ModelConfig(BaseConfig):
    """Model dimensions. Values that are not set are selected for the data and the device."""

    dim: int | None = Field(default=None, ge=1, description="model dimension")
    depth: int | None = Field(
        default=None, ge=1, description="number of blocks; of an encoder-decoder, in each of the two"
    )
    heads: int | None = Field(default=None, ge=1, description="attention heads per block")
    hidden: int | None = Field(default=None, ge=1, description="hidden dimension of the feed-forward layers")
    dropout: float | None = Field(default=None, ge=0, lt=1, description="dropout probability")


class TranslationModelConfig(ModelConfig):
    """Dimensions and norm placement of an encoder-decoder."""

    norm: Literal["pre", "post"] = Field(
        default="pre", description="pre-norm, or post-norm as in the original Transformer, which needs warmup"
    )


class BatchConfig(BaseConfig):
    """Batch size, in tokens."""

    max_tokens: int | None = Field(
        default=None, ge=1, description="tokens per batch, padding included; default: selected for the data"
    )
    max_length: int | None = Field(
        default=None, ge=4, description="maximum tokens per example; default: selected for the data"
    )


class TranslationBatchConfig(BatchConfig):
    """Batch size, in tokens, and padding."""

    pad_to_multiple_of: int = Field(default=1, ge=1, description="pad lengths to a multiple of this; 8 suits a GPU")


class TranslationRegConfig(BaseConfig):
    """Regularization of translation models."""

    label_smoothing: float = Field(default=0.1, ge=0, lt=1, description="label smoothing")
    rdrop_alpha: float = Field(
        default=0.0, ge=0, description="R-Drop: weight of the KL term between two forward passes; 5 is usual"
    )


class ClassificationRegConfig(BaseConfig):
    """Regularization of classifiers."""

    label_smoothing: float = Field(default=0.0, ge=0, lt=1, description="label smoothing, with one class per text only")
    rdrop_alpha: float = Field(
        default=0.0, ge=0, description="R-Drop: weight of the KL term between two forward passes; 1 is usual"
    )
    word_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="probability of hiding a token from attention in training"
    )


class TaggingRegConfig(BaseConfig):
    """Regularization of taggers."""

    label_smoothing: float = Field(default=0.0, ge=0, lt=1, description="label smoothing")
    word_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="probability of replacing a token by the mask token in training"
    )


class DecodeConfig(BaseConfig):
    """Decoding in evaluation."""

    num_beams: int = Field(default=5, ge=1, description="beam size; 1 decodes greedily")
    length_penalty: float = Field(default=1.0, description="length penalty; above 0 favors longer outputs")
    eval_samples: int = Field(default=200, ge=1, description="validation examples translated in each evaluation")
    monitor: Literal["loss", "bleu"] = Field(
        default="loss", description="validation metric that selects the best checkpoint"
    )


class LoraConfig(BaseConfig):
    """LoRA: low-rank adapters on frozen pretrained weights (Hu et al., 2021)."""

    rank: int = Field(default=0, ge=0, description="LoRA rank, 8 is usual; 0 trains all weights")
    alpha: float | None = Field(default=None, gt=0, description="LoRA alpha; default: twice the rank")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout probability on the adapters' input")
    target_modules: tuple[str, ...] = Field(
        default=("to_query", "to_value"),
        description="modules that get an adapter, by the end of their names: to_query to_value attn.to_out",
    )


class RunConfig(BaseConfig):
    """What every run is configured with: data, run directory and loggers."""

    task: ClassVar[str]
    """The name of the task: `softlook train TASK`."""
    unit: ClassVar[str] = "tokens"
    """What the training speed counts."""
    inference_command: ClassVar[str]
    """The command that runs a trained model."""
    example_input: ClassVar[str] = '"..."'
    """An input of that command, as an example."""

    data: Files = Field(default=(), description="training files or folders")
    valid: Files = Field(default=(), description="validation files; default: a split of the training data")
    test: Files = Field(default=(), description="test files, evaluated once at the end")
    run_dir: Path | None = Field(default=None, description="run directory; default: runs/<task>-<data>")
    fresh: bool = Field(default=False, description="start a new run next to an existing one instead of resuming it")
    loggers: tuple[LoggerName, ...] = Field(
        default=(), description="experiment loggers, or none; default: TensorBoard if it is installed"
    )


class TextConfig(RunConfig):
    """What every text task is configured with."""

    max_bad_rows: int = Field(default=0, ge=0, description="unreadable rows to skip before raising an error")
    max_line_chars: int = Field(default=1_000_000, ge=1, description="maximum characters per line")
    init_from: Path | None = Field(
        default=None, description="run, checkpoint or Hugging Face folder to initialize the weights from"
    )
    lora: LoraConfig = LoraConfig()
    epochs: float | None = Field(
        default=None, gt=0, description="passes over the training data, an alternative to max_steps"
    )
    eval_fraction: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="share of the validation data for evaluations during training, of which the final scores use all; "
        "default: as much as the time limit allows",
    )
    no_baseline: bool = Field(default=False, description="do not compare the model with simple baselines")
    tokenizer: TokenizerConfig = TokenizerConfig()
    optim: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()


class TranslationConfig(TextConfig):
    """Train an encoder-decoder on pairs of texts, such as sentences and their translations."""

    task: ClassVar[str] = "translate"
    inference_command: ClassVar[str] = "translate"

    source: str | None = Field(default=None, description="source column; default: detected")
    target: str | None = Field(default=None, description="target column; default: detected")
    arch: Literal["transformer", "rnn_search"] = Field(default="transformer", description="model architecture")
    model: TranslationModelConfig = TranslationModelConfig()
    batch: TranslationBatchConfig = TranslationBatchConfig()
    reg: TranslationRegConfig = TranslationRegConfig()
    decode: DecodeConfig = DecodeConfig()


class CausalLMConfig(TextConfig):
    """Train a causal language model: predict the next token."""

    task: ClassVar[str] = "lm"
    inference_command: ClassVar[str] = "generate"

    text: str | None = Field(default=None, description="text column, in tables")
    label: str | None = Field(
        default=None,
        description="column of classes, in tables: `softlook generate --label` then writes texts of a class",
    )
    label_dropout: float = Field(
        default=0.1, ge=0, lt=1, description="share of the texts that are read without their label, for guidance"
    )
    arch: Literal["gpt", "llama", "transformer_xl", "convolution", "fast_weights"] | None = Field(
        default=None, description="model architecture; default: gpt, or llama if time is short"
    )
    memory: Literal["product_key", "all_attention"] | None = Field(
        default=None,
        description="learned memory of a gpt: product keys in place of the feed-forward layer of the middle block, or "
        "persistent vectors in place of all feed-forward layers (all-attention)",
    )
    memory_slots: int | None = Field(
        default=None,
        ge=1,
        description="slots of the product keys, rounded down to a square number, or persistent vectors of each head "
        "and layer; default: 16384 product keys, or as many vectors as a feed-forward layer has hidden units",
    )
    no_ngrams: bool = Field(default=False, description="use attention alone, without an n-gram model")
    model: ModelConfig = ModelConfig()
    batch: BatchConfig = BatchConfig()


class MaskedLMConfig(TextConfig):
    """Train a masked language model: predict masked tokens from both sides."""

    task: ClassVar[str] = "mlm"
    unit: ClassVar[str] = "masked tokens"
    inference_command: ClassVar[str] = "fill"
    example_input: ClassVar[str] = '"... [MASK] ..."'

    text: str | None = Field(default=None, description="text column, in tables")
    next_sentence: bool = Field(default=False, description="also train next-sentence prediction")
    mask_prob: float = Field(default=0.15, gt=0, lt=1, description="probability of masking a token")
    no_ngrams: bool = Field(default=False, description="use attention alone, without a model of neighboring tokens")
    model: ModelConfig = ModelConfig()
    batch: BatchConfig = BatchConfig()


class ClassificationConfig(TextConfig):
    """Train a text classifier."""

    task: ClassVar[str] = "classify"
    unit: ClassVar[str] = "texts"
    inference_command: ClassVar[str] = "classify"

    text: str | None = Field(default=None, description="text column; default: detected")
    text_pair: str | None = Field(default=None, description="column of the second text, to classify pairs")
    label: str | None = Field(default=None, description="label column; default: detected")
    problem: Literal["single_label", "multi_label", "regression"] | None = Field(
        default=None,
        description="one class per text, several labels per text, or a number; default: several labels if the label "
        "column holds JSON lists, otherwise one class",
    )
    label_separator: str | None = Field(
        default=None, min_length=1, description="between the labels of a text; default: detected among ; | and ,"
    )
    pooling: Literal["cls", "mean"] | None = Field(
        default=None, description="pooling: the class token (cls) or the mean over tokens; default: mean"
    )
    monitor: Literal["accuracy", "loss"] = Field(
        default="loss", description="validation metric that selects the best checkpoint"
    )
    no_ngrams: bool = Field(default=False, description="use attention alone, without a linear model on n-grams")
    model: ModelConfig = ModelConfig()
    batch: BatchConfig = BatchConfig()
    reg: ClassificationRegConfig = ClassificationRegConfig()


class ImageModelConfig(ModelConfig):
    """Dimensions of a Vision Transformer."""

    image_size: int | None = Field(
        default=None, ge=2, description="images are resized to so many pixels a side; default: selected for the data"
    )
    patch_size: int | None = Field(
        default=None, ge=1, description="pixels on each side of a patch, 1 for single pixels; default: selected"
    )
    pooling: Literal["cls", "mean"] = Field(
        default="cls", description="pooling: the class token (cls) or the mean over patches"
    )


class AugmentationConfig(BaseConfig):
    """Random changes of the training images, drawn anew each time an image is seen."""

    shift: float = Field(default=0.1, ge=0, lt=1, description="largest shift, as a share of the image")
    rotate: float = Field(default=10.0, ge=0, le=180, description="largest rotation, in degrees")
    zoom: float = Field(default=0.1, ge=0, lt=1, description="largest change of size, as a share")
    flip: bool = Field(default=False, description="mirror images left to right at random: not for digits or letters")


class ImageConfig(RunConfig):
    """Train an image classifier: one folder of images per class, or a table of paths and labels."""

    task: ClassVar[str] = "images"
    unit: ClassVar[str] = "images"
    inference_command: ClassVar[str] = "classify"
    example_input: ClassVar[str] = "photo.png"

    image: str | None = Field(default=None, description="column of image paths, in tables; default: detected")
    label: str | None = Field(default=None, description="label column, in tables; default: detected")
    init_from: Path | None = Field(
        default=None, description="run, checkpoint or Hugging Face folder of a ViT to initialize the weights from"
    )
    epochs: float | None = Field(
        default=None, gt=0, description="passes over the training data, an alternative to max_steps"
    )
    batch_size: int | None = Field(default=None, ge=1, description="images per batch; default: selected for the data")
    no_baseline: bool = Field(default=False, description="do not compare the model with a linear model of the pixels")
    model: ImageModelConfig = ImageModelConfig()
    augment: AugmentationConfig = AugmentationConfig()
    optim: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()


class TaggingConfig(TextConfig):
    """Train a token tagger, such as named entity recognition."""

    task: ClassVar[str] = "tag"
    unit: ClassVar[str] = "words"
    inference_command: ClassVar[str] = "tag"

    monitor: Literal["f1", "loss"] = Field(
        default="f1", description="validation metric that selects the best checkpoint"
    )
    model: ModelConfig = ModelConfig()
    batch: BatchConfig = BatchConfig()
    reg: TaggingRegConfig = TaggingRegConfig()


class Word2VecConfig(TextConfig):
    """Train word vectors: word2vec's skip-gram with negative sampling."""

    task: ClassVar[str] = "word2vec"
    unit: ClassVar[str] = "pairs"
    inference_command: ClassVar[str] = "search"
    example_input: ClassVar[str] = "WORD"

    text: str | None = Field(default=None, description="text column, in tables")
    window: int = Field(default=5, ge=1, description="context window: words on each side")
    negatives: int = Field(default=5, ge=1, description="negative samples per pair")
    model: ModelConfig = ModelConfig()
    batch: BatchConfig = BatchConfig()


FILE_FIELDS = {"data", "valid", "test"}
"""Fields that are lists of files."""
MUTABLE_FIELDS = {*FILE_FIELDS, "run_dir", "fresh", "loggers", "init_from", "decode.num_beams", "decode.length_penalty"}
MUTABLE_FIELDS |= {"no_baseline", "ensemble", "epochs", "training.epochs"}
"""Fields that may change when a run is resumed, or that are compared by content."""
