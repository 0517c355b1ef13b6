"""What each parameter of an estimator means, and what a fitted one knows: said once, for the `help` of all four."""

import inspect
from typing import TypeVar

Estimator = TypeVar("Estimator", bound=type)
PARAMETERS = {
    "recipe": "'ours', 'paper', or a `softlook.tabular.Recipe`: all that is None below. `RECIPES` has what they hold.",
    "dim": "Width of a token. FT-Transformer: 64 to 256 by rows and device, 192 in the paper. TabTransformer: 32.",
    "depth": "How many blocks there are.",
    "heads": "Heads of each block, which share `dim` evenly.",
    "hidden": "Width inside the feed-forward layers; 4/3 of `dim` where no recipe tells it.",
    "members": "Members that share their weights and answer together. 'ours': up to 8, fewer where a CPU is too slow.",
    "number_tokens": "How a number becomes a token: 'piecewise' ('ours'), 'periodic', or 'linear' ('paper').",
    "scaling": "What numbers go through first: 'quantile', 'standard' or 'none'.",
    "dropout": "Share dropped before each addition while learning.",
    "attention_dropout": "Share of attention weights dropped while learning. 'ours': by rows, and by what is wanted.",
    "hidden_dropout": "Share dropped inside the feed-forward layers while learning. 'ours': by rows.",
    "lr": "Learning rate of AdamW; with 'ours' of FT-Transformers the highest one, which then falls to nothing.",
    "weight_decay": "How strongly AdamW pulls matrices to zero.",
    "batch_size": "Rows a step; 256 where no recipe tells it, and 1,024 from 50,000 rows on.",
    "epochs": "Most times through the rows. Where None, patience and the recipe's schedule decide.",
    "patience": "Looks at the held-out rows without a better one, until it is enough.",
    "watch": "What is better then: 'loss', 'score' (accuracy), or 'either': the score if 20,000 rows are held out.",
    "validation_share": "Share of the rows that is held out to stop by; of fewer than 50 rows none are.",
    "time_limit": "Seconds that `fit`, or `pretrain`, may take.",
    "memory_limit": "Bytes that a table by path, or in pieces, may take up; of a larger one parts are held. 1 GiB.",
    "class_weight": "'balanced', or what each class weighs: {'yes': 3}. Classes that are not named weigh 1.",
    "kinds": "{column: kind} where a kind was seen wrongly: number, boolean, category, ordinal, date or text.",
    "ordinal": "{column: [lowest, ..., highest]} for columns whose values have an order.",
    "device": "'auto' is a GPU where there is one; else as torch names them: 'cpu', 'cuda:1'.",
    "n_jobs": "Cores to compute on: torch's own number where None, all of them for -1.",
    "random_state": "A seed, or numpy's RandomState, for the same bits again; None is by chance.",
    "warm_start": "Whether `fit` goes on with the model that there is, instead of beginning anew.",
    "verbose": "Whether `fit` tells on stderr what columns were taken for, and how far it has come.",
}
ATTRIBUTES = {
    "classes_": "The labels, in order.",
    "columns_": "What was learned of columns: `columns_.told()` says it in words, `columns_.kinds` is what they are.",
    "model_": "The model, a torch.nn.Module.",
    "recipe_": "The recipe as it was followed, with everything settled.",
    "memory_": "Rows that are looked at beside the model, or None.",
    "history_": "For each epoch its number, losses and seconds.",
    "n_iter_": "How many epochs there were.",
    "n_features_in_": "How many columns there were.",
    "feature_names_in_": "What they were called, if all of them had words for names.",
}


def explained(estimator: Estimator) -> Estimator:
    """The same estimator, whose docstring says what its parameters and attributes mean, in the form of numpydoc."""
    told = inspect.signature(estimator).parameters
    parameters = [f"{name} : default={told[name].default!r}\n    {PARAMETERS[name]}" for name in told]
    known = {name: text for name, text in ATTRIBUTES.items() if name != "classes_" or "class_weight" in told}
    attributes = [f"{name}\n    {text}" for name, text in known.items()]
    written = inspect.cleandoc(estimator.__doc__ or "")
    estimator.__doc__ = "\n".join([written, *_section("Parameters", parameters), *_section("Attributes", attributes)])
    return estimator


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", title, "-" * len(title), *lines]
