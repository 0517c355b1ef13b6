"""Looking at a map without holding it: a `Look` has the statistics that were asked for, exact, in O(N) memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import overload

from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.ops import statistics
from softlook.ops.bias import Bias
from softlook.ops.masks.algebra import Mask
from softlook.ops.operation import attention, share
from softlook.ops.question import Question, autocast, check_tensor, check_value, full_precision
from softlook.ops.question import ask as ask_question
from softlook.ops.scores import Score

BASIC = ("lse", "entropy", "strongest", "received")
"""What a look tells if nothing else is asked for."""
PER_QUERY = ("lse", "entropy", "effective_keys", "strongest", "distance", "top_weights", "top_indices")
PER_KEY = ("received",)
POOLED = ("heat_mean", "heat_max")
EVERYTHING = PER_QUERY + PER_KEY + POOLED


class Found:
    """A statistic, there if it was asked for."""

    def __init__(self, meaning: str) -> None:
        self.__doc__ = meaning

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, look: None, owner: type) -> "Found": ...
    @overload
    def __get__(self, look: "Look", owner: type) -> Tensor: ...
    def __get__(self, look: "Look | None", owner: type) -> "Tensor | Found":
        if look is None:
            return self
        if self.name not in look.found:
            raise AttributeError(
                f"this look was not asked for {self.name!r}, only for {', '.join(look.found)}: add it to ask=(...)"
            )
        return look.found[self.name]


@dataclass(frozen=True, eq=False, repr=False)
class Look:
    """What was asked about a map. Weights are those before dropout; what goes to a sink is nobody's.

    >>> import torch
    >>> from softlook import look
    >>> query, key = torch.randn(2, 1, 1, 5, 4)
    >>> seen = look(query, key, ask=("entropy", "received"))
    >>> seen
    Look(entropy 1x1x5, received 1x1x5)
    >>> seen.received.sum().round()
    tensor(5.)
    """

    found: Mapping[str, Tensor]
    question: Question | None = None
    total: Tensor | None = None
    """Log-sum-exp over all keys, where the question holds only a part of them."""

    lse = Found("(B, H, T) log of the sum of exp(score); -inf where nothing is seen. Any weight is exp(score - lse).")
    entropy = Found("(B, H, T) -sum of w log w, in nats: 0 for one key, log n for n keys alike.")
    effective_keys = Found(
        "(B, H, T) (sum of w)^2 / sum of w^2: n for n keys alike, at least 1 where any key is seen, 0 where none is. "
        "A sink does not change it: it takes the same share of every key."
    )
    strongest = Found("(B, H, T) the largest weight.")
    distance = Found("(B, H, T) sum of w |i - j|: how far off a query looks, in positions.")
    top_weights = Found("(B, H, T, top) the largest weights, largest first; 0 where there are fewer keys.")
    top_indices = Found("(B, H, T, top) the keys they fall on; -1 where there are fewer.")
    received = Found("(B, H, S) sum over the queries of the weight a key is given.")
    heat_mean = Found("(B, H, bins, bins) mean weight of each cell: the map, average-pooled.")
    heat_max = Found("(B, H, bins, bins) largest weight of each cell: the map, max-pooled.")

    def mix(self, value: Tensor) -> Tensor:
        """The map times `value`, (B, G, S, E) or (S, E): what each query gathers. (B, H, T, E)"""
        question = self._question()
        B, G, s, _ = question.key.shape
        value = value.expand(B, G, *value.shape) if value.ndim == 2 else value
        check_value(question, value)
        with full_precision(value):
            return statistics.mix(question, self.total, value)

    def spread(self, amounts: Tensor) -> Tensor:
        """The map turned over times `amounts`, (B, H, T, E) or (T, E): what each key is given. (B, H, S, E)"""
        question = self._question()
        B, H, T, _ = question.sizes
        amounts = amounts.expand(B, H, *amounts.shape) if amounts.ndim == 2 else amounts
        check_tensor("amounts", amounts, like=question.query)
        if amounts.shape[:3] != (B, H, T):
            raise ShapeError(
                f"spread wants one amount for each query, {(B, H, T, 'width')}; {tuple(amounts.shape)} came"
            )
        with full_precision(amounts):
            return statistics.spread(question, self.total, amounts).to(amounts.dtype)

    def __repr__(self) -> str:
        sizes = [f"{name} {'x'.join(map(str, found.shape))}" for name, found in self.found.items()]
        return f"Look({', '.join(sizes)})"

    def _question(self) -> Question:
        if self.question is None:
            raise ValueError("this look was merged from parts and no longer has the queries and keys: mix each part")
        return self.question


def look(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S _"],
    *,
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | float | None = None,
    score: Score | None = None,
    ask: Iterable[str] = BASIC,
    top: int = 8,
    bins: int = 64,
    part: tuple[int, int] | None = None,
    lse: Float[Tensor, "B H T"] | None = None,
) -> Look:
    """Statistics of the map `attention` averages with: exact, in memory that grows with the length, not its square.

    `ask` names what to find out, among the fields of `Look`; `top` is how many keys `top_weights` lists,
    `bins` how many cells a side of the pooled maps has. Every statistic but `top_indices` is differentiable, as are
    `Look.mix` and `Look.spread`; strips are recomputed for it, so memory stays O(N). To measure only, call it under
    `torch.no_grad()`, which is faster.

    Keys that come in parts (a cache in chunks, a ring of machines): `part=(first, all)` places these keys
    among all of them. Looks at parts are joined by `softlook.ops.merge`. What is added up per key needs the
    log-sum-exp over all keys first: pass the merged one as `lse`.

    >>> import torch
    >>> from softlook import look, masks
    >>> query, key = torch.randn(2, 1, 2, 6, 4)
    >>> seen = look(query, key, mask=masks.causal(), ask=("strongest", "top_indices"), top=1)
    >>> seen.strongest[0, 0, 0], seen.top_indices[0, 0, 0]
    (tensor(1.), tensor([0]))
    """
    question = ask_question(
        query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sink=sink, score=score, part=part
    )
    wanted = _wanted(ask)
    _check_part(question, wanted, sink, part, lse)
    with full_precision(question.query):
        found = statistics.measure(question, wanted, top=_count("top", top), bins=_count("bins", bins), lse=lse)
    return Look({name: found[name] for name in EVERYTHING if name in wanted}, question, lse)


def attention_and_look(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S _"],
    value: Float[Tensor, "B G S E"],
    *,
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | float | None = None,
    dropout: float = 0.0,
    score: Score | None = None,
    ask: Iterable[str] = BASIC,
    top: int = 8,
    bins: int = 64,
) -> tuple[Float[Tensor, "B H T E"], Look]:
    """The output of `attention` and a `Look` at its map, in one go.

    Gradients flow through the output and through the look. Without any to carry, both come from one pass.

    >>> import torch
    >>> query, key, value = torch.randn(3, 1, 2, 6, 4)
    >>> output, seen = attention_and_look(query, key, value, ask=("entropy",))
    >>> output.shape, seen.entropy.shape
    (torch.Size([1, 2, 6, 4]), torch.Size([1, 2, 6]))
    """
    question = ask_question(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sink=sink, score=score)
    wanted, (value,) = _wanted(ask), autocast(value)
    check_value(question, value)
    carries = share(dropout) > 0 or question.learns_with(value)
    with full_precision(value):
        found = statistics.measure(
            question, wanted, top=_count("top", top), bins=_count("bins", bins), value=None if carries else value
        )
    output = found.pop("output", None)
    if output is None:
        output = attention(
            query,
            key,
            value,
            mask=mask,
            bias=bias,
            scale=scale,
            softcap=softcap,
            sink=sink,
            dropout=dropout,
            score=score,
        )
    return output, Look({name: found[name] for name in EVERYTHING if name in wanted}, question)


def _wanted(ask: Iterable[str]) -> frozenset[str]:
    names = (ask,) if isinstance(ask, str) else tuple(ask)
    for name in names:
        if name not in EVERYTHING:
            near = get_close_matches(name, EVERYTHING, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There is {', '.join(EVERYTHING)}."
            raise ValueError(f"a look cannot tell {name!r}. {hint}")
    return frozenset(names)


def _check_part(
    question: Question, wanted: frozenset[str], sink: object, part: tuple[int, int] | None, lse: Tensor | None
) -> None:
    added_up = wanted & {*PER_KEY, *POOLED}
    if lse is not None:
        if lse.shape != question.query.shape[:3]:
            raise ShapeError(
                f"lse wants one number per query, {tuple(question.query.shape[:3])}; {tuple(lse.shape)} came"
            )
        if wanted != added_up:
            raise ValueError(
                f"{', '.join(sorted(wanted - added_up))} of all keys comes from merging the parts; "
                f"with lse=, ask for {', '.join((*PER_KEY, *POOLED))}"
            )
    elif part is not None and added_up:
        raise ValueError(
            f"{', '.join(sorted(added_up))} of a part of the keys needs the log-sum-exp over all of them: "
            "look at each part for 'lse', merge those, and pass the result as lse="
        )
    elif part is not None and sink is not None:
        raise ValueError("a sink belongs to all keys together: look at the parts without it")


def _count(name: str, number: int) -> int:
    if number < 1:
        raise ValueError(f"{name} wants a whole number from 1 up; {number} came")
    return number
