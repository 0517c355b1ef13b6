"""Pictures of the Transformer: encoder and decoder from the module tree, and where the norms stand."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from softlook.blocks import FeedForward, PostNormBlock, PreNormBlock, SelfAttention
from softlook.lens.figures.charts import Curve, line_chart, make_axis
from softlook.lens.figures.color import role
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.gallery.inputs import random, seed
from softlook.lens.figures.graph import arrow, box, circle, lines
from softlook.lens.figures.picture import Picture, column, label, overlay, row
from softlook.lens.figures.shapes import Rect
from softlook.lens.figures.tokens import SIZES
from softlook.models.transformer import Transformer, TransformerConfig

SMALL = SIZES["small"]
BOX, STEP = 228.0, 60.0
COLORS = {"SelfAttention": "query", "CrossAttention": "key", "FeedForward": "value", "LayerNorm": "input"}


@dataclass(frozen=True)
class Module:
    """A module of the tree: its path, class and number of parameters."""

    path: str
    name: str
    parameters: int


def encoder_decoder() -> Figure:
    """The encoder-decoder Transformer, from the modules that a forward pass calls."""
    with seed():
        config = TransformerConfig(vocab_size=1000, dim=64, depth=2, heads=4, dropout=0.0)
        model = Transformer(config).eval()
    stacks = {"encoder": _called(model, "encoder.blocks.0"), "decoder": _called(model, "decoder.blocks.0")}
    parts, tops = [], {}
    bottom = STEP * (1 + max(map(len, stacks.values()))) + 40
    for index, (name, modules) in enumerate(stacks.items()):
        x = 70.0 + index * 330
        picture, top = _stack(modules, x, bottom)
        frame = Rect(
            x=x - 16, y=top - 14, width=BOX + 32, height=bottom - top + 8, radius=10, stroke=role("line"), dash="5 4"
        )
        depth = len(model.get_submodule(f"{name}.blocks"))  # pyright: ignore[reportArgumentType]
        parts += [
            picture,
            Picture(0, 0, (frame,)),
            label(f"{depth} ×", bold=True).at(x - 52 if not index else x + BOX + 24, (top + bottom) / 2),
        ]
        embedding = _count(model.get_submodule(f"{name}.embedding"))
        source = "source" if name == "encoder" else "target so far"
        parts.append(
            box("token + position embedding", "input", note=f"{embedding:,} parameters", width=BOX).at(x, bottom + 24)
        )
        parts.append(arrow((x + BOX / 2, bottom + 24), (x + BOX / 2, bottom - 10)))
        words = label(source, "soft")
        parts.append(words.at(x + BOX / 2 - words.width / 2, bottom + 104))
        parts.append(arrow((x + BOX / 2, bottom + 100), (x + BOX / 2, bottom + 70)))
        tops[name] = top
    x = 400.0 + BOX / 2
    parts.append(arrow((x, tops["decoder"] - 1), (x, tops["decoder"] - 32)))
    parts.append(
        box("lm_head: logits", "output", note="tied to the token embedding", width=BOX).at(400, tops["decoder"] - 78)
    )
    words = label("next token", "soft")
    parts += [
        arrow((x, tops["decoder"] - 78), (x, tops["decoder"] - 102)),
        words.at(x - words.width / 2, tops["decoder"] - 124),
    ]
    cross = next(n for n, one in enumerate(stacks["decoder"]) if one.name == "CrossAttention")
    y = bottom - 36 - STEP * cross - 5
    exit_x, middle = 70 + BOX / 2, 70 + BOX + 28
    path = (
        (exit_x, tops["encoder"]),
        (exit_x, tops["encoder"] - 26),
        (middle, tops["encoder"] - 26),
        (middle, y),
        (400.0, y),
    )
    parts.append(lines(path, "key", width=2))
    parts.append(label("K, V", "key-ink", bold=True).at(middle + 10, y - 24))
    shift = 130 - tops["decoder"]
    modules = {name: [(one.path, one.name, one.parameters) for one in found] for name, found in stacks.items()}
    return Figure(
        "The encoder-decoder Transformer",
        "Left, the encoder: embedding, then blocks of self-attention and feed-forward, each followed by a norm. Right, "
        "the decoder: causal self-attention, cross-attention to the encoder's output, feed-forward; then logits.",
        overlay(*parts).at(-12, shift),
        {"modules": modules, "parameters": _count(model), "depth": config.depth},
        subtitle="The modules of softlook.models.Transformer in the order of a forward pass, with their parameters.",
        caption=f"A small model: width 64, 4 heads, {_count(model):,} parameters. Pink: the residual "
        "connections, which add the input of a layer to its output, before the norm (post-norm, as published).",
    )


def _called(model: Transformer, path: str) -> list[Module]:
    """The children of a block in the order in which a forward pass calls them."""
    found: list[Module] = []
    block, hooks = model.get_submodule(path), []

    def record(name: str) -> Callable[[nn.Module, tuple[object, ...]], None]:
        def hook(module: nn.Module, args: tuple[object, ...]) -> None:
            found.append(Module(f"{path}.{name}", type(module).__name__, _count(module)))

        return hook

    hooks = [
        child.register_forward_pre_hook(record(name)) for name, child in block.named_children() if name != "dropout"
    ]
    with torch.no_grad():
        model(torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 2, dtype=torch.long))
    for hook in hooks:
        hook.remove()
    return found


def _stack(modules: list[Module], x: float, bottom: float) -> tuple[Picture, float]:
    """Modules above one another, and the top of the highest."""
    parts = []
    for index, module in enumerate(modules):
        y = bottom - 58 - STEP * index
        name = module.path.rpartition(".")[2]
        words = f"{name}: {module.name}"
        parts.append(box(words, COLORS[module.name], note=f"{module.parameters:,} parameters", width=BOX).at(x, y))
        if index:
            parts.append(arrow((x + BOX / 2, y + STEP), (x + BOX / 2, y + 46)))
        if module.name != "LayerNorm":  # its input is added to its output before the norm
            rail = ((x + BOX / 2, y + 51), (x - 8, y + 51), (x - 8, y - STEP + 22), (x, y - STEP + 22))
            parts.append(lines(rail, "output"))
    return overlay(*parts), bottom - 58 - STEP * (len(modules) - 1)


def _count(module: nn.Module) -> int:
    return sum(one.numel() for one in module.parameters())


DEPTH, WIDTH, RUNS = 12, 64, 4


def norm_placement() -> Figure:
    """Pre-norm and post-norm side by side, and the gradient that reaches each block before training."""
    gradients = {name: _gradients(kind) for name, kind in (("pre-norm", PreNormBlock), ("post-norm", PostNormBlock))}
    blocks = range(1, DEPTH + 1)
    chart = line_chart(
        {
            name: Curve(list(blocks), values, color, dots=True)
            for (name, values), color in zip(gradients.items(), ("query", "key"), strict=True)
        },
        x_axis=make_axis(list(blocks), ticks=(1, 4, 8, 12)),
        y_axis=make_axis([y for ys in gradients.values() for y in ys], zero=True),
        x_label="block, from the input",
        y_label="gradient norm before training",
        width=180,
        height=220,
    )
    drawings = [
        column(label(name, "ink", bold=True), _block(name), label(formula, "soft", size=SMALL), gap=10, align="middle")
        for name, formula in (("pre-norm", "x + layer(norm(x))"), ("post-norm", "norm(x + layer(x))"))
    ]
    return Figure(
        "Pre-norm and post-norm",
        "Two blocks. In pre-norm the residual path runs from bottom to top untouched; in post-norm a norm stands on it "
        f"after every addition. A chart of gradient norms over {DEPTH} blocks: from {gradients['pre-norm'][0]:.2f} to "
        f"{gradients['pre-norm'][-1]:.2f} with pre-norm, from {gradients['post-norm'][0]:.2f} to "
        f"{gradients['post-norm'][-1]:.2f} with post-norm.",
        row(*drawings, chart, gap=20),
        {"gradients": gradients},
        subtitle="Where the norm stands decides whether there is a path without any norm from the output to the input.",
        caption=f"Norm of the gradient of each block's parameters, {DEPTH} blocks of width {WIDTH} at "
        "initialization, loss: "
        f"mean squared difference to random targets. Mean of {RUNS} initializations.",
    )


def _gradients(kind: type[PreNormBlock] | type[PostNormBlock]) -> list[float]:
    """The norm of the gradient of each block, the mean over several initializations."""
    runs = torch.tensor([_gradients_of(kind, number) for number in range(RUNS)])
    return runs.mean(0).tolist()


def _gradients_of(kind: type[PreNormBlock] | type[PostNormBlock], number: int) -> list[float]:
    with seed(number):
        blocks = [
            kind(SelfAttention(WIDTH, heads=4), FeedForward(WIDTH), lambda: nn.LayerNorm(WIDTH)) for _ in range(DEPTH)
        ]
        final = nn.LayerNorm(WIDTH) if kind is PreNormBlock else nn.Identity()
    x: Tensor = random(4, 16, WIDTH, number=2)
    for one in blocks:
        x = one(x)
    (final(x) - random(4, 16, WIDTH, number=3)).square().mean().backward()
    norms = (torch.stack([p.grad.norm() for p in one.parameters() if p.grad is not None]).norm() for one in blocks)
    return [float(norm) for norm in norms]


def _block(name: str) -> Picture:
    """A sub-layer with its residual connection, from bottom to top."""
    x, width = 60.0, 140.0
    center = x + width / 2
    if name == "pre-norm":
        boxes = [("norm", "input", 150.0), ("attention or FFN", "query", 84.0)]
        plus = 34.0
    else:
        boxes = [("attention or FFN", "query", 150.0), ("norm", "input", 20.0)]
        plus = 90.0
    parts = [box(words, color, width=width).at(x, y) for words, color, y in boxes]
    parts.append(circle("+").at(center - 15, plus))
    order = sorted([(y, y + 34) for *_, y in boxes] + [(plus, plus + 30)], reverse=True)
    previous = 236.0
    for top, low in order:
        parts.append(arrow((center, previous), (center, low + 1)))
        previous = top
    parts.append(arrow((center, previous), (center, 0 if previous > 26 else -14)))
    rail = ((center, 214.0), (x - 26, 214.0), (x - 26, plus + 15), (center - 16, plus + 15))
    parts.append(lines(rail, "output", width=2))
    parts.append(label("residual", "output-ink", size=SMALL).at(-22, (214 + plus) / 2 - 4))
    parts.append(label("x", "input-ink", bold=True).at(center + 8, 222))
    return overlay(*parts).at(24, 16).sized(x + width + 28, 266)
