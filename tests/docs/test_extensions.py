"""The extensions of the documentation: formulas as MathML, definitions read from the source, and related names."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from docutils import nodes

EXTENSIONS = Path(__file__).parents[2] / "docs/_extensions"


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    return importlib.import_module(request.param)


@pytest.mark.parametrize("extension", ["mathml"], indirect=True)
def test_a_formula_becomes_mathml_as_a_block_or_inline(extension: ModuleType) -> None:
    formula = r"y = \big(\frac{a}{b}\Big), \dots"
    block, inline = (extension.convert(kind("", formula)) for kind in (nodes.math_block, nodes.math))
    assert "<mfrac>" in block and "<mi>…</mi>" in block
    assert 'display="block"' in block and 'display="block"' not in inline


@pytest.mark.parametrize("extension", ["mathml"], indirect=True)
def test_an_unknown_command_is_shown_as_it_was_written(extension: ModuleType) -> None:
    assert extension.convert(nodes.math("", r"\nosuchcommand < 1")) == r"<code>\nosuchcommand &lt; 1</code>"


@pytest.mark.parametrize("extension", ["source"], indirect=True)
def test_a_function_keeps_its_annotations_as_written(extension: ModuleType) -> None:
    found = extension.load_module("softlook").definition("attention_weights")
    assert found.signature.startswith(
        "(query: Float[Tensor, 'B H T D'], key: Float[Tensor, 'B G S _'], *, mask: Mask |"
    )
    assert found.signature.endswith("-> Float[Tensor, 'B H T S']")


@pytest.mark.parametrize("extension", ["source"], indirect=True)
def test_a_class_is_made_from_its_fields_or_its_constructor(extension: ModuleType) -> None:
    models, blocks = (extension.load_module(f"softlook.{name}") for name in ("models", "blocks"))
    config, attention = models.definition("GPTConfig"), blocks.definition("SelfAttention")
    assert config.signature.startswith("(vocab_size: int = 50257, context: int = 1024, dim: int = 768,")
    assert {member.name: member.docstring for member in config.members}["depth"] == "Number of blocks."
    assert attention.signature.startswith("(dim: int, heads: int, *, kv_heads: int | None=None")  # inherited
    assert "forward" in [member.name for member in attention.members]


@pytest.mark.parametrize("extension", ["see_also"], indirect=True)
def test_a_name_refers_to_pages_whose_code_uses_it_and_to_names_of_its_signature(extension: ModuleType) -> None:
    module = importlib.import_module("source").load_module("softlook.blocks")
    definitions = {name: module.definition(name) for name in module.public_names()}
    assert "(/book/25-memories.md)" in extension.see_also("ProductKeyMemory", definitions)
    assert "(/book/12-three-uses.md)" in extension.see_also("CrossAttention", definitions)
    assert "{py:obj}`KVCache`" in extension.see_also("LayerCache", definitions)
