"""A plain GPT-2 and its training loop: what a careful user writes with torch alone, compiled by hand."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY_MULTIPLE = 64


class PlainBlock(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.project = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        parts = self.qkv(self.norm_1(x)).split(C, 2)
        query, key, value = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2) for part in parts)
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(heads.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class PlainGPT2(nn.Module):
    """GPT-2 with a padded vocabulary and tied embeddings; returns the mean loss."""

    def __init__(self, vocab_size: int, context: int, dim: int, depth: int, heads: int) -> None:
        super().__init__()
        padded = -(-vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
        self.tokens, self.positions = nn.Embedding(padded, dim), nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(PlainBlock(dim, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, padded, bias=False)
        self.head.weight = self.tokens.weight
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        for name, parameter in self.named_parameters():
            if name.endswith(("project.weight", "down.weight")):
                nn.init.normal_(parameter, std=0.02 / (2 * depth) ** 0.5)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten(), ignore_index=-100)


class PlainTrainer:
    """Autocast, torch.compile, clipping and fused AdamW; the loss is not read between steps."""

    def __init__(self, model: nn.Module, *, lr: float) -> None:
        self.model, self.compiled, self.number = model, torch.compile(model, dynamic=False), 0
        groups: list[dict[str, Any]] = [
            {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)

    def run(self, batches: Sequence[tuple[Tensor, Tensor]], steps: int) -> list[float]:
        """So many steps, on batches in pinned memory; returns the losses."""
        losses = []
        for _ in range(steps):
            ids, labels = (one.cuda(non_blocking=True) for one in batches[self.number % len(batches)])
            self.number += 1
            with torch.autocast("cuda", torch.bfloat16):
                loss = self.compiled(ids, labels)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
        return torch.stack(losses).tolist()
