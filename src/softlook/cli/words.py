"""The words about training and asking, each named by where it lives and loaded only when it is called."""

from collections.abc import Sequence

from cyclopts import App, Parameter

EXAMPLES = """
  softlook train translate --data pairs.tsv        two columns, or two files
  softlook train lm --data corpus.txt              say what comes next
  softlook train fill --data corpus.txt --pairs    hidden words, from both sides
  softlook train classify --data reviews.csv --text review --label stars
  softlook train vectors --data corpus.txt         words by their company
  softlook train table --data adult.csv --target income
  softlook check adult.csv --target income         look before you train
"""
AFTER = """
Every setting can also stand in a file (--config run.toml) or in the environment
(SOFTLOOK_OPTIM__LR=3e-4); flags come first, then the environment, then the file.
The same command again goes on where a run was stopped; --fresh begins anew beside it.
"""
TRAIN = {
    "translate": "Turn one text into another, as pairs show it.",
    "lm": "Say what comes next: a language model.",
    "fill": "Find hidden words from both sides: a masked language model.",
    "classify": "Say which class a text belongs to.",
    "vectors": "Give words vectors from the company they keep.",
    "table": "Predict one column of a table from the others.",
}
LOOKING = {
    "check": ("check", "Look at data before training."),
    "eval": ("evaluate", "What a run is worth on other data."),
    "runs": ("runs", "The runs there are, the newest first."),
    "info": ("info", "Versions, devices, room: for bug reports."),
    "doctor": ("doctor", "Try what a run needs."),
}
ANSWERING = {
    "generate": (
        "Go on with a text.",
        """
  softlook generate runs/lm-poems "Once upon a time"
  softlook generate runs/lm-poems --count 3 --temperature 1 --seed 7
  softlook --json generate gpt2 --file prompts.txt > answers.jsonl
""",
    ),
    "translate": (
        "Say texts in other words, as a run has learned it.",
        """
  softlook translate dates "jeudi 3 mars 2022"       the reader that comes along
  softlook translate runs/translate-pairs --file a.txt b.txt.gz > said.txt
  cat a.txt | softlook translate runs/translate-pairs --score right.txt
""",
    ),
    "classify": (
        "Say which class texts belong to.",
        """
  softlook classify runs/classify-reviews "What a film."
  softlook classify runs/classify-reviews --file new.csv --text review > classes.tsv
""",
    ),
    "embed": (
        "Give texts, or words, vectors.",
        """
  softlook embed all-MiniLM-L6-v2 "A sentence." "Another one."
  softlook embed all-MiniLM-L6-v2 --file corpus.txt --to vectors.parquet
  softlook embed runs/vectors-corpus king queen      word vectors
""",
    ),
}
PREDICT = (
    "Answers for the rows of a table.",
    """
  softlook predict runs/table-adult --data new.csv > answers.csv
  softlook predict runs/table-adult --data new.parquet --out answers.parquet --probabilities
  cat new.csv | softlook predict runs/table-adult - --keep id
""",
)
TUNE = (
    "Try many settings for a table, and keep the best.",
    """
  softlook tune --data adult.csv --target income --trials 20 --minutes 10
  softlook tune --data adult.csv --target income --recipe paper --size.depth 3
  softlook train table --config runs/tune-adult/best.toml
""",
)
ASK = """
  softlook translate dates "jeudi 3 mars 2022"     ask, here what comes along
"""
DEMO = "Learn to read dates in many languages, and see where the model looks."
STYLE = Parameter(consume_multiple=True, negative=(), show_default=False)
PIPE = "/dev/stdin"
"""What a hyphen stands for, where files are wanted."""


def spelled(words: Sequence[str]) -> list[str]:
    """A hyphen by itself, which is taken for an option that lacks its name, as what it means to `predict`.

    >>> spelled(["predict", "run", "-"])
    ['predict', 'run', '/dev/stdin']
    """
    return [PIPE if word == "-" and "predict" in words[:1] else word for word in words]


def add_words(app: App) -> None:
    """Put them among the others."""
    train = App(name="train", help="From a file to a working model.", help_prologue=EXAMPLES, help_epilogue=AFTER)
    for name, help in TRAIN.items():
        train.command(f"softlook.cli.training:{name}", help=help, help_prologue="", default_parameter=STYLE)
    app.command(train)
    for name, (home, help) in LOOKING.items():
        app.command(f"softlook.cli.looking:{home}", name=name, help=help, help_prologue="", default_parameter=STYLE)
    for name, (help, examples) in ANSWERING.items():
        home = f"softlook.cli.answering:{name}"
        app.command(home, help=help, help_prologue=examples, default_parameter=STYLE)
    for home, (help, examples) in (("predicting:predict", PREDICT), ("tuning:tune", TUNE)):
        app.command(f"softlook.cli.{home}", help=help, help_prologue=examples, default_parameter=STYLE)
    app.command("softlook.cli.demo:demo", help=DEMO, help_prologue="", default_parameter=STYLE)
    tokenizer = App(name="tokenizer", help="Make a tokenizer, or see how one cuts.", help_prologue="")
    tokenizer.command("softlook.cli.tokenizing:train", help="Make one from text.", default_parameter=STYLE)
    tokenizer.command("softlook.cli.tokenizing:show", help="How it cuts a text.", default_parameter=STYLE)
    app.command(tokenizer)
