"""The pages on which texts become something else: vectors, classes, other words."""

import base64
import struct
from collections.abc import Sequence

import torch

from softlook.base.errors import DataError
from softlook.heads import class_scores
from softlook.serve import replies
from softlook.serve.asking import Ask
from softlook.serve.hall import Seat
from softlook.serve.metrics import Metrics
from softlook.serve.pages import ASKED, counter_of, router, written
from softlook.serve.parsing import BadRequestError
from softlook.serve.schemas import ClassificationRequest, EmbeddingRequest
from softlook.serve.served import Served
from softlook.serve.wording import finite, input_ids, numbered

try:
    from fastapi import Request, Response
except ImportError as fault:
    raise ImportError("to serve, install what a server needs: pip install softlook[serve]") from fault


@router.post("/v1/embeddings", response_model=replies.Embeddings, responses=ASKED)
async def embeddings(asked: EmbeddingRequest, request: Request) -> Response:
    """A vector for each text."""
    counter = counter_of(request)
    seat = counter.hall.seat(asked.model, "embeddings")
    before, inputs = seat.served.sentence.prompt(), numbered("input", asked.input)
    inputs = {path: before + one if isinstance(one, str) else one for path, one in inputs.items()}
    asks = [framed(seat.served, ids) for ids in await input_ids(seat.served, inputs, seat.served.frame.around)]
    found = await counter.wait(seat, asks, request).numbers()
    vectors = [vector[: seat.served.sentence.dimensions].tolist() for vector in found]
    if asked.dimensions not in (None, len(vectors[0])):
        expected = f"expected {len(vectors[0])}, the length of this model's vectors"
        raise BadRequestError(f"{expected}, got {asked.dimensions}", "dimensions")
    packed = vectors if asked.encoding_format == "float" else list(map(_packed, vectors))
    data = [replies.EmbeddingItem(index=i, embedding=vector) for i, vector in enumerate(packed)]
    return written(replies.Embeddings(model=asked.model, data=data, usage=_read(asks, seat, counter.metrics)))


@router.post("/v1/classify", response_model=replies.Classes, responses=ASKED)
async def classify(asked: ClassificationRequest, request: Request) -> Response:
    """The class of each text, and how sure the model is."""
    counter = counter_of(request)
    seat = counter.hall.seat(asked.model, "classify")
    texts, pairs = numbered("text", asked.text), {} if asked.pair is None else numbered("pair", asked.pair)
    if pairs and len(pairs) != len(texts):
        raise DataError(f"every text wants a second one of its own; {len(texts)} and {len(pairs)} came")
    found = await input_ids(seat.served, {**texts, **pairs}, seat.served.frame.around)
    ones, others = found[: len(texts)], found[len(texts) :] or [[]] * len(texts)
    asks = [framed(seat.served, one, other) for one, other in zip(ones, others, strict=True)]
    found = await counter.wait(seat, asks, request).numbers()
    data = [_classes(i, logits, seat.served, asked.top) for i, logits in enumerate(found)]
    return written(replies.Classes(model=asked.model, data=data, usage=_read(asks, seat, counter.metrics)))


def framed(served: Served, ids: Sequence[int], other: Sequence[int] = ()) -> Ask:
    """A text, or two, as encoders read them: with special tokens around."""
    row = served.frame.join(ids, other)
    if len(row.ids) > served.context:
        raise DataError(f"these two texts have more tokens together than the {served.context:,} there is room for")
    return Ask(tuple(row.ids), second=row.segments.index(1) if 1 in row.segments else None)


def _classes(index: int, logits: torch.Tensor, served: Served, top: int) -> replies.ClassItem:
    labels = served.labels
    best = class_scores(logits, served.model.config.problem).topk(min(top, len(labels)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    told = [replies.ClassScore(label=labels[int(number)], score=finite(score)) for number, score in pairs]
    return replies.ClassItem(index=index, label=told[0].label, score=told[0].score, scores=told)


def _read(asks: Sequence[Ask], seat: Seat, metrics: Metrics) -> replies.EmbeddingUsage:
    read = sum(len(ask.prompt) for ask in asks)
    metrics.tokens.labels(seat.served.name, "read").inc(read)
    return replies.EmbeddingUsage(prompt_tokens=read, total_tokens=read)


def _packed(vector: Sequence[float]) -> str:
    """As OpenAI's clients ask for it: four bytes a number, little end first."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
