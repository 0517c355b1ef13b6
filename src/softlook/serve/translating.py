"""The page of translators: texts in other words, the best few of each, and where they looked."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from softlook.base.errors import DataError
from softlook.decode import Hypothesis
from softlook.decode.alignment import aligned
from softlook.decode.habits import alone
from softlook.serve import replies
from softlook.serve.asking import COLDEST, Ask, Manner, Search, Ticket
from softlook.serve.limits import Limits
from softlook.serve.metrics import Metrics
from softlook.serve.pages import ASKED, Counter, counter_of, router, written
from softlook.serve.schemas import TranslationRequest
from softlook.serve.served import Served
from softlook.serve.wording import aside, check_product, finite, input_ids, limit_for, numbered

try:
    from fastapi import Request, Response
except ImportError as fault:
    raise ImportError("to serve, install what a server needs: pip install softlook[serve]") from fault

DIGITS = 4
"""Of a weight; more is noise."""


@router.post("/v1/translate", response_model=replies.Translations, responses=ASKED)
async def translate(asked: TranslationRequest, request: Request) -> Response:
    """Each text in other words."""
    counter = counter_of(request)
    seat, limits = counter.hall.seat(asked.model, "translate"), counter.hall.limits
    texts, order = (
        [str(text).strip() for text in numbered("text", asked.text).values()],
        Order.of(asked, seat.served, limits),
    )
    full = [number for number, text in enumerate(texts) if text]
    asks = await _asks({f"text[{number}]": texts[number] for number in full}, order, limits)
    tickets = await counter.wait(seat, asks, request).all() if asks else []
    told = [order.best_of(ticket) for ticket in tickets]
    made = iter([await _candidate(one, seat.served) for several in told for one in several])
    if asked.alignments:
        made = iter(await _aligned(list(made), list(_looks(tickets, told)), counter, seat.served, request))
    best = {number: list(islice(made, len(several))) for number, several in zip(full, told, strict=True)}
    data = [_item(number, best.get(number, [])) for number in range(len(texts))]
    usage = _usage(tickets, told, seat.served, counter.metrics)
    return written(replies.Translations(model=asked.model, data=data, usage=usage))


@dataclass(frozen=True)
class Order:
    """How translations are to be found, everything settled."""

    served: Served
    asked: TranslationRequest
    beams: int
    penalty: float
    seed: int

    @staticmethod
    def of(asked: TranslationRequest, served: Served, limits: Limits) -> "Order":
        """What is not asked is as the model is used to."""
        drawn, habits = asked.temperature >= COLDEST, served.habits
        habits.check(searching=drawn or asked.beams is not None)
        usual = 1 if drawn else max(min(habits.beams, limits.rows), asked.best)
        beams = usual if asked.beams is None else asked.beams
        if drawn and max(beams, asked.best) > 1:
            raise DataError(f"words are drawn, at a temperature of {asked.temperature}, or searched for: leave out one")
        if asked.best > beams:
            raise DataError(f"the {asked.best} best of {beams} beams were wanted. Ask for as many beams at least")
        if beams > limits.rows:
            raise DataError(f"{limits.rows} sequences are worked on together here, and {beams} beams are more")
        penalty = habits.penalty if asked.penalty is None else asked.penalty
        return Order(served, asked, beams, penalty, secrets.randbits(62) if asked.seed is None else asked.seed)

    def ask(self, source: Sequence[int], limits: Limits) -> Ask:
        """One text, as it is read with its signs."""
        served, habits = self.served, self.served.habits
        usual = habits.room(len(source))
        return Ask(
            served.signs.begin,
            tuple(source),
            limit=limit_for(self.asked.max_tokens, len(served.signs.begin), served, limits, usual),
            manner=Manner(temperature=self.asked.temperature),
            search=Search(self.beams, self.penalty) if self.beams > 1 else None,
            habits=habits if habits.bound or habits.early != "never" else None,
            seed=self.seed,
            end=served.ends,
        )

    def best_of(self, ticket: Ticket) -> tuple[Hypothesis, ...]:
        """As many of what was found as were asked for."""
        found = ticket.found or (alone(ticket.row.tokens, ticket.row.end, self.penalty),)
        return found[: self.asked.best]


async def _asks(texts: Mapping[str, str], order: Order, limits: Limits) -> list[Ask]:
    signs, asked = order.served.signs, order.asked
    check_product(len(texts), asked.max_tokens or 1, order.beams - 1, limits)
    coded = await input_ids(order.served, texts, len(signs.before) + len(signs.after))
    asks = [order.ask((*signs.before, *ids, *signs.after), limits) for ids in coded]
    check_product(len(texts), max((ask.limit for ask in asks), default=1), order.beams - 1, limits)
    weights = sum(asked.best * ask.limit * len(ask.source or ()) for ask in asks)
    if asked.alignments and weights > limits.product:
        raise DataError(
            f"alignments of these texts may take {weights:,} numbers; at most {limits.product:,} are answered. "
            "Ask for fewer texts at a time, or for fewer tokens: max_tokens"
        )
    return asks


def _looks(tickets: Sequence[Ticket], told: Sequence[Sequence[Hypothesis]]) -> Iterator[Ask]:
    """The question where each of them looked."""
    for ticket, several in zip(tickets, told, strict=True):
        for one in several:
            yield Ask((*ticket.ask.prompt, *one.ids), ticket.ask.source, looks=True)


async def _aligned(
    made: list[replies.TranslationCandidate], asks: Sequence[Ask], counter: Counter, served: Served, request: Request
) -> list[replies.TranslationCandidate]:
    if not asks:
        return []
    seat, begun = counter.hall.seat(served.name, "translate"), len(served.signs.begin)
    maps = await counter.wait(seat, asks, request).numbers()
    for candidate, ask, weights in zip(made, asks, maps, strict=True):
        said, source = ask.prompt[begun:], ask.source or ()
        found = aligned(served.tokenizer, served.signs, weights[: len(said)], source, said)
        candidate.alignment = replies.Alignment(
            source=found.source,
            target=found.target,
            words=found.words(),
            tokens=found.tokens(),
            weights=[[round(finite(weight), DIGITS) for weight in row] for row in found.weights.tolist()],
        )
    return made


async def _candidate(one: Hypothesis, served: Served) -> replies.TranslationCandidate:
    return replies.TranslationCandidate(
        text=await aside(lambda: served.tokenizer.decode(one.ids), len(one.ids)),
        finish_reason="length" if one.end is None else "stop",
        score=finite(one.score),
        log_probability=finite(one.log_probability),
    )


def _item(index: int, best: list[replies.TranslationCandidate]) -> replies.TranslationItem:
    """The best of them, and all of them; of a text without a word there is nothing to say."""
    nothing = replies.TranslationCandidate(text="", finish_reason="stop", score=0.0, log_probability=0.0)
    return replies.TranslationItem(index=index, **dict(best[0] if best else nothing), best=best)


def _usage(
    tickets: Sequence[Ticket], told: Sequence[Sequence[Hypothesis]], served: Served, metrics: Metrics
) -> replies.Usage:
    """Tokens that were read, and those of all answers that are told."""
    read = sum(len(ticket.ask.source or ()) for ticket in tickets)
    spoken = sum(len(one.log_probabilities) for several in told for one in several)
    metrics.tokens.labels(served.name, "read").inc(read)
    metrics.tokens.labels(served.name, "said").inc(spoken)
    return replies.Usage(prompt_tokens=read, completion_tokens=spoken, total_tokens=read + spoken)
