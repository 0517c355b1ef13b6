"""Names that other programs use for options and commands, with softlook's own."""


def _table(*rows: tuple[str, str]) -> dict[str, tuple[str, ...]]:
    """Each of the names before the arrow with the candidates after it."""
    return {name: tuple(candidates.split(" | ")) for names, candidates in rows for name in names.split()}


OPTION_SYNONYMS = _table(
    ("--data --file --files --input --input-file -i --dataset --corpus", "--data | --file"),
    ("--train --train-file --train-data --train-path", "--data"),
    ("--val --validation --validation-file --valid-file --dev --eval-file", "--valid"),
    ("--test-file --test-data", "--test"),
    ("--text-column --text-col", "--text"),
    ("--label --labels --label-column --label-col --class", "--label | --target"),
    ("--target --target-column --y", "--target | --label"),
    ("--src --source-column --source-lang", "--source | --source-language"),
    ("--tgt --trg --target-lang", "--target | --target-language"),
    ("--run-dir --to --out -o --output --output-dir --output-file --out-dir --save-dir", "--run-dir | --to | --out"),
    ("--model -m --model-name --model-name-or-path --checkpoint --pretrained", "--init-from"),
    ("--learning-rate --eta", "--lr"),
    ("--epochs --epoch --num-epochs --n-epochs --max-epochs --num-train-epochs", "--epochs | --max-steps"),
    ("--num-steps --train-steps --iterations --iters --max-iters", "--max-steps"),
    ("--time --max-time --time-limit --timeout", "--max-minutes"),
    ("--warmup-steps --num-warmup-steps", "--warmup"),
    ("--batch-size --batch --bs --train-batch-size", "--batch-size | --batch-tokens"),
    ("--max-tokens", "--max-new-tokens | --batch-tokens"),
    ("--max-length --max-len --max-seq-length --seq-len --context --block-size", "--max-length | --max-new-tokens"),
    ("--gpu --cuda --use-gpu --use-cuda", "--device cuda"),
    ("--cpu --no-cuda --no-gpu", "--device cpu"),
    ("--gpus --num-gpus --n-gpu --num-processes", "--devices | --device cuda"),
    ("--fp16 --half", "--precision float16"),
    ("--bf16 --amp", "--precision bfloat16"),
    ("--random-seed --random-state", "--seed"),
    ("--overwrite --force", "--fresh"),
    ("--d-model --hidden-size --embed-dim --n-embd", "--model.dim"),
    ("--layers --num-layers --n-layer --n-layers", "--model.depth"),
    ("--num-heads --n-head --n-heads", "--model.heads"),
    ("--tokenizer", "--tokenizer.file"),
    ("--early-stopping", "--training.patience"),
    ("--lora --lora-rank --lora-r", "--lora.rank"),
    ("--beam --beams --beam-size --beam-width", "--num-beams"),
    ("-n --num-return-sequences", "--num-samples | --n-best"),
    ("--n-trials --num-trials", "--trials"),
)
"""Options to suggest for an unknown one: the first that the command has."""
OPTION_ANSWERS = {
    "--batch-tokens": "Batches are counted in tokens, padding included: --batch-tokens 4096",
    "--resume": "The same command resumes a stopped run; no option is needed.",
}
"""Answers to an unknown option, or instead of a suggestion."""
OPTION_COMMANDS = _table(
    ("--temperature --top-p --top-k --max-new-tokens --num-samples", "generate"),
    ("--num-beams --n-best", "translate"),
    ("--port --host", "serve"),
    ("--trials", "tune"),
    ("--probabilities", "predict"),
)
"""The command that has an option."""
COMMAND_SYNONYMS = _table(
    ("fit finetune fine-tune pretrain learn", "train"),
    ("evaluate test score validate", "eval"),
    ("inspect describe analyze lint data", "check"),
    ("convert load download", "import"),
    ("list ls models", "runs"),
    ("generate sample complete chat run gpt language-model", "generate | lm"),
    ("search hpo sweep", "tune"),
    ("embed encode vectors skipgram", "embed | word2vec"),
    ("infer inference", "predict"),
    ("server api", "serve"),
    ("tokenize tokenise", "tokenizer"),
    ("version env", "info"),
    ("bert masked-lm fill", "mlm"),
    ("classification classifier text-classification", "classify"),
    ("translation mt seq2seq", "translate"),
    ("predict tabular csv regression", "predict | table"),
)
"""Commands, or tasks of `softlook train`, to suggest for an unknown one."""
