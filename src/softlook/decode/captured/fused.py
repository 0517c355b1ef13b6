"""The parts of one more word on a GPU: by kernels that each do several of them, where those are faster."""
# pyright: reportIndexIssue=false

import torch
from torch import Tensor

from softlook.decode.captured import beam_kernels, kernels, look_kernels
from softlook.decode.captured.parts import Kept, Past, Plain
from softlook.decode.captured.plan import Bend, Looking, Norm, Plan, Sum
from softlook.decode.captured.triton_or_not import triton
from softlook.decode.captured.ways import Aims, Ways

FEW = 2
"""Up to so many rows each row is multiplied on its own; above, matrix units do it."""
EARLY = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9
"""Are kernels begun while the one before still works? From Hopper on they can be."""
SOME = 128
"""Above so many rows torch's own matrix products are the faster ones."""
MOST_ROWS = 32
"""Queries up to which those that look at the same source do so together."""
WIDEST = 32
"""Candidates of a sequence up to which one kernel sees to them."""
BLOCK, MANY = 128, 32
"""Words of a block, and blocks that are looked through together."""


class Fused(Plain):
    """Each part by a kernel that does all of it, or as ever."""

    def enter(self, plan: Plan, ids: Tensor, past: Past) -> Tensor:
        C = plan.tokens.shape[1]
        out = plan.tokens.new_empty(len(ids), C)
        places = plan.tokens if past.places is None else past.places
        kernels.enter[(len(ids),)](
            ids, plan.tokens, places, out, past.first, past.at, plan.factor,
            C=C, WIDE=_above(C), PLACES=past.places is not None, SCALED=plan.factor != 1.0,
            EARLY=EARLY, **_early(),
        )  # fmt: skip
        return out

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        M, K = x.shape
        if M > SOME or K > 8192:
            return super().norm(x, norm)
        out = torch.empty_like(x)
        kernels.norm_rows[(M,)](
            x, norm.weight, _or(norm.bias, norm.weight), out, norm.eps,
            K=K, WIDE=_above(K), NORM="square" if norm.by_square else "layer", SHIFT=norm.bias is not None,
            EARLY=EARLY, **_early(),
        )  # fmt: skip
        return out

    def sum(
        self,
        x: Tensor,
        sum: Sum,
        *,
        norm: Norm | None = None,
        bend: Bend = "none",
        gated: bool = False,
        residual: Tensor | None = None,
    ) -> Tensor:
        few = len(x) <= FEW and x.shape[1] <= 8192
        if not few and norm is not None:
            x, norm = self.norm(x, norm), None
        if few:
            return _few(x, sum, norm, bend, gated=gated, residual=residual)
        if len(x) <= SOME and x.dtype != torch.float32 and sum.weight.shape[1] % 16 == 0:
            return _some(x, sum, bend, gated=gated, residual=residual)
        return super().sum(x, sum, bend=bend, gated=gated, residual=residual)

    def sum_norm(self, x: Tensor, sum: Sum, norm: Norm, residual: Tensor) -> Tensor:
        if len(x) <= SOME or residual.shape[1] > 8192:
            return super().sum_norm(x, sum, norm, residual)
        made = super().sum(x, sum)
        out, (M, K) = torch.empty_like(made), made.shape
        kernels.add_norm[(M,)](
            made, residual, norm.weight, _or(norm.bias, norm.weight), out, norm.eps,
            K=K, WIDE=_above(K), NORM="square" if norm.by_square else "layer", SHIFT=norm.bias is not None,
            EARLY=EARLY, **_early(),
        )  # fmt: skip
        return out

    def look_back(self, heads: Tensor, look: Looking, kept: Kept, past: Past) -> Tensor:
        return _look(heads, look, (kept.key, kept.value), past.at, past)

    def look_across(self, query: Tensor, look: Looking, kept: Kept, lengths: Tensor) -> Tensor:
        assert kept.other is not None
        ways = len(query) // len(lengths)
        if ways * (look.heads // look.kv_heads) in range(2, MOST_ROWS + 1):
            return _look_across(query, look, kept.other, lengths, ways)
        return _look(query, look, kept.other, lengths, None)

    def say(self, scores: Tensor, ids: Tensor, said: Tensor, chances: Tensor, step: Tensor) -> None:
        Survey(scores).say(ids, said, chances, step)

    def best_words(self, scores: Tensor, width: int) -> tuple[Tensor, Tensor]:
        return Survey(scores).best_words(width)

    def go_on(
        self,
        found: tuple[Tensor, Tensor],
        totals: Tensor,
        ways: Ways,
        aims: Aims,
        *,
        ids: Tensor,
        paths: Tensor | None,
        length: Tensor,
    ) -> None:
        if (1 + len(aims.ends)) * ways.totals.shape[1] > WIDEST:
            super().go_on(found, totals, ways, aims, ids=ids, paths=paths, length=length)
        else:
            _advance(found, totals, ways, aims, ids=ids, paths=paths, length=length)

    def backwards(self, ways: Ways, rows: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        (_, L, K), R = ways.words.shape, len(rows)
        said, own = ways.words.new_zeros(R, K, longest, dtype=torch.int32), ways.own.new_zeros(R, K, longest)
        beam_kernels.backwards[(R * K,)](
            rows, ways.parents, ways.words, ways.own, ways.found_length, ways.found_beam, ways.found_word,
            ways.found_own, said, own, L, longest, K=K, num_warps=1,
        )  # fmt: skip
        return said, own


def _advance(
    found: tuple[Tensor, Tensor],
    totals: Tensor,
    ways: Ways,
    aims: Aims,
    *,
    ids: Tensor,
    paths: Tensor | None,
    length: Tensor,
) -> None:
    (chances, words), (N, K), (_, L, _) = found, ways.totals.shape, ways.words.shape
    came, W, columns = totals.shape[1], words.shape[1], 0 if paths is None else paths.shape[1]
    beam_kernels.advance[(N,)](
        chances, words, totals, ways.totals, ways.parents, ways.words, ways.own,
        ways.found, ways.found_length, ways.found_beam, ways.found_word, ways.found_own, ways.over.view(torch.int8),
        ids, _or(paths, ids), aims.divisors, aims.kindest, aims.ends, aims.limits, length, L, columns,
        FROM=came, K=K, W=W, WIDTH=min((1 + len(aims.ends)) * K, came * W), ENDS=len(aims.ends),
        LANES=_above(came * W), PLACES=_above(2 * K), WAYS=_above(K), BLOCK=64, MOVE=paths is not None,
        EARLY=EARLY, num_warps=1, **_early(),
    )  # fmt: skip


def _few(x: Tensor, sum: Sum, norm: Norm | None, bend: Bend, *, gated: bool, residual: Tensor | None) -> Tensor:
    M, K = x.shape
    N = len(sum.weight) // (2 if gated else 1)
    out, weight = x.new_empty(M, N), sum.weight
    wide = _above(K)
    columns = max(1, min(8 if N > 8192 else 2, 8192 // wide))
    kernels.few_rows[(triton.cdiv(N, columns),)](
        x, weight, _or(sum.bias, weight), _or(residual, weight),
        weight if norm is None else norm.weight, weight if norm is None else _or(norm.bias, weight), out,
        M, N, 0.0 if norm is None else norm.eps,
        K=K, WIDE=wide, COLUMNS=columns,
        NORM="none" if norm is None else "square" if norm.by_square else "layer",
        SHIFT=norm is not None and norm.bias is not None,
        BEND=bend, GATED=gated, BIAS=sum.bias is not None, RESIDUAL=residual is not None,
        EARLY=EARLY, num_warps=4 if wide <= 4096 else 8, **_early(),
    )  # fmt: skip
    return out


def _some(x: Tensor, sum: Sum, bend: Bend, *, gated: bool, residual: Tensor | None) -> Tensor:
    M, K = x.shape
    N = len(sum.weight) // (2 if gated else 1)
    out, weight = x.new_empty(M, N), sum.weight
    rows, columns, deep, warps, stages = tiles(M, N, K)
    kernels.some_rows[(triton.cdiv(N, columns), triton.cdiv(M, rows))](
        x, weight, _or(sum.bias, weight), _or(residual, weight), out, M, N,
        K=K, ROWS=rows, COLUMNS=columns, DEEP=deep,
        BEND=bend, GATED=gated, BIAS=sum.bias is not None, RESIDUAL=residual is not None,
        EARLY=EARLY, num_warps=warps, num_stages=stages, **_early(),
    )  # fmt: skip
    return out


def tiles(M: int, N: int, K: int) -> tuple[int, int, int, int, int]:
    """Rows, columns and depth of a tile, and warps and stages: so many programs that all of the chip has work."""
    rows = 16 if M <= 16 else 32 if M <= 32 else 64
    if N > 8192:
        return rows, 64, 64, 4, 5
    return rows, 32 if N > 1024 else 16, 64 if K % 128 else 128, 4, 4


def _look(heads: Tensor, look: Looking, kept: tuple[Tensor, Tensor], last: Tensor, past: Past | None) -> Tensor:
    (M, key), paths = (len(heads), kept[0]), None if past is None else past.paths
    out = heads.new_empty(M, look.heads * look.width)
    turns = None if past is None else past.turns
    block, warps = _blocks(M * look.kv_heads, key.shape[2])
    look_kernels.look[(M, look.kv_heads)](
        heads, key, kept[1], out, _or(paths, last), last if past is None else past.first, last,
        *((heads, heads) if turns is None else turns),
        look.scale, heads.stride(0), key.stride(0), key.stride(1), 0 if paths is None else paths.stride(0),
        HEADS=look.heads, KV=look.kv_heads, D=look.width, WIDTH=_above(look.width), BLOCK=block,
        WAYS=1 if past is not None else M // len(key),
        OWN=past is not None, PATHS=paths is not None, TURN=turns is not None,
        EARLY=EARLY, num_warps=warps, **_early(),
    )  # fmt: skip
    return out


def _look_across(query: Tensor, look: Looking, other: tuple[Tensor, Tensor], lengths: Tensor, ways: int) -> Tensor:
    key, value = other
    out, rows = torch.empty_like(query), ways * (look.heads // look.kv_heads)
    look_kernels.look_across[(len(lengths), look.kv_heads)](
        query, key, value, out, lengths, look.scale, key.stride(0), key.stride(1),
        HEADS=look.heads, KV=look.kv_heads, D=look.width, WIDTH=max(16, _above(look.width)),
        BLOCK=32 if key.shape[2] <= 32 else 64, WAYS=ways, ROWS=max(16, _above(rows)),
        EARLY=EARLY, num_warps=2, **_early(),
    )  # fmt: skip
    return out


def _blocks(programs: int, columns: int) -> tuple[int, int]:
    """Columns that are looked at together, and warps for it: many where few programs have the chip to themselves."""
    if programs >= 4096:
        return 32, 1
    return (64, 2) if programs >= 256 or columns <= 64 else (256, 8)


class Survey:
    """Where the best words stand, found in one pass over all scores."""

    def __init__(self, scores: Tensor) -> None:
        self.scores = scores = scores.contiguous()
        self.rows, self.words = scores.shape
        self.blocks, self.parts = triton.cdiv(self.words, BLOCK), triton.cdiv(self.words, BLOCK * MANY)
        self.best = scores.new_empty(self.rows, self.blocks, dtype=torch.float32)
        self.part = scores.new_empty(self.rows, self.parts, 2, dtype=torch.float32)
        kernels.survey[(self.rows, self.parts)](
            scores, self.best, self.part, self.words, self.blocks, self.parts, BLOCK=BLOCK, MANY=MANY, EARLY=EARLY,
            num_warps=4, **_early(),
        )  # fmt: skip

    def say(self, ids: Tensor, said: Tensor, chances: Tensor, step: Tensor) -> None:
        """The likeliest of each row, as the next ids, and in line `step` of what was said with its log-probability."""
        kernels.say[(self.rows,)](
            self.scores, self.best, self.part, ids, said, chances, step, self.words, self.blocks, self.parts, self.rows,
            BLOCK=BLOCK, MOST_BLOCKS=_above(self.blocks), MOST_PARTS=_above(self.parts), EARLY=EARLY,
            num_warps=4, **_early(),
        )  # fmt: skip

    def best_words(self, width: int) -> tuple[Tensor, Tensor]:
        """The log-probabilities of the best so many words of each row, best first, and which they are."""
        width, most = min(width, self.words), _above(self.blocks)
        chances = self.best.new_empty(self.rows, width)
        words = self.best.new_empty(self.rows, width, dtype=torch.long)
        beam_kernels.best_words[(self.rows,)](
            self.scores, self.best, self.part, chances, words, self.words, self.blocks, self.parts,
            WIDTH=width, BLOCK=BLOCK, MOST_BLOCKS=most, MOST_PARTS=_above(self.parts), EARLY=EARLY,
            num_warps=1 if most <= 512 else 4, **_early(),
        )  # fmt: skip
        return chances, words


def _early() -> dict[str, bool]:
    return {"launch_pdl": True} if EARLY else {}


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    return other if tensor is None else tensor


def _above(number: int) -> int:
    """The next power of two."""
    return triton.next_power_of_2(number)
