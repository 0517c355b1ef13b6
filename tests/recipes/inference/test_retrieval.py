"""Search is exact: the hits are those with the largest cosine similarity among all texts."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from softlook.base.errors import ConfigError, DiskError, WeightsError
from softlook.models import Bert, BertConfig
from softlook.recipes.inference import Pipeline, SearchIndex, build_index, embed, load_pipeline, search
from softlook.recipes.inference.retrieval import check_index, join_indexes, nearest, vocabulary_index
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.weights.assets import SpecialTokens
from softlook.weights.sentence_transformers import SentenceConfig
from softlook.weights.tensor_files import write_safetensors
from tests.recipes.trained_runs import train_runs

TEXTS = [
    f"the {who} {does} {what}" for who in ("cat", "dog", "king") for does in ("eats", "sees") for what in ("a", "b")
]


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    torch.manual_seed(0)
    tokenizer = TextTokenizer(train_tokenizer(TEXTS, model_type="words"))
    config = BertConfig(vocab_size=tokenizer.vocab_size, context=16, dim=32, depth=1, heads=2, head="hidden_states")
    return Pipeline("tiny", Bert(config).eval(), tokenizer, SpecialTokens(), [], torch.device("cpu"))


def test_the_hits_are_those_with_the_largest_cosine_similarity(pipeline: Pipeline) -> None:
    hits = search(pipeline, build_index(pipeline, TEXTS), ["the king sees", "a dog"], top_k=4)
    vectors, queries = embed(pipeline, TEXTS), embed(pipeline, ["the king sees", "a dog"])
    for found, query in zip(hits, queries, strict=True):
        similarities = torch.cosine_similarity(query[None], vectors)
        assert [hit.number for hit in found] == similarities.argsort(descending=True)[:4].tolist()
        for hit in found:
            assert hit.text == TEXTS[hit.number]
            assert hit.score == pytest.approx(similarities[hit.number].item(), abs=1e-5)


def test_a_text_is_its_own_nearest_neighbor(pipeline: Pipeline) -> None:
    hits = search(pipeline, build_index(pipeline, TEXTS), TEXTS, top_k=1)
    assert [found[0].text for found in hits] == TEXTS
    assert all(found[0].score == pytest.approx(1, abs=1e-5) for found in hits)


def test_blocks_of_vectors_give_the_same_neighbors_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, vectors = torch.randn(7, 8), torch.randn(50, 8)
    scores, indices = nearest(queries, vectors, 5)
    expected = (queries @ vectors.T).topk(5)
    assert torch.equal(indices, expected.indices) and torch.equal(scores, expected.values)
    monkeypatch.setitem(nearest.__globals__, "VECTOR_BLOCK", 3)
    blocked_scores, blocked = nearest(queries, vectors, 5)
    assert torch.equal(blocked, indices)
    torch.testing.assert_close(blocked_scores, scores)


def test_equal_scores_are_ordered_by_index() -> None:
    assert nearest(torch.ones(1, 2), torch.ones(4, 2), 4)[1].tolist() == [[0, 1, 2, 3]]


def test_fewer_texts_than_top_k_are_all_found(pipeline: Pipeline) -> None:
    assert len(search(pipeline, build_index(pipeline, TEXTS[:2]), ["the cat"], top_k=10)[0]) == 2
    assert search(pipeline, build_index(pipeline, []), ["the cat"]) == [[]]
    assert search(pipeline, build_index(pipeline, TEXTS), []) == []


def test_a_saved_index_gives_the_same_hits(pipeline: Pipeline, tmp_path: Path) -> None:
    index = build_index(pipeline, [*TEXTS, "naïve 日本 \n\t\x00"], pooling="cls")
    index.save(tmp_path / "a.safetensors")
    loaded = SearchIndex.load(tmp_path / "a.safetensors")
    check_index(pipeline, loaded)
    assert (loaded.texts, loaded.pooling) == (index.texts, "cls") and torch.equal(loaded.vectors, index.vectors)
    assert search(pipeline, loaded, ["the cat"]) == search(pipeline, index, ["the cat"])
    with pytest.raises(DiskError, match="already exists"):
        index.save(tmp_path / "a.safetensors")
    with pytest.raises(ConfigError, match="an index is saved as .safetensors"):
        index.save(tmp_path / "a.faiss")
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_an_index_of_another_model_is_an_error(pipeline: Pipeline) -> None:
    index = build_index(pipeline, TEXTS)
    torch.manual_seed(1)
    other = replace(pipeline, model=Bert(pipeline.model.config).eval(), name="other")
    with pytest.raises(ConfigError, match="other did not make this index"):
        check_index(other, index)
    with pytest.raises(ConfigError, match="different dimensions, poolings or prompts"):
        join_indexes([index, build_index(pipeline, TEXTS, pooling="cls")])


@pytest.mark.parametrize("content", [b"{}", b"[]", b"not json", b'{"texts": [1, 2], "pooling": null, "prompt": null}'])
def test_another_safetensors_file_is_not_an_index(tmp_path: Path, content: bytes) -> None:
    encoded = torch.tensor(list(content), dtype=torch.uint8)
    write_safetensors({"vectors": torch.eye(2), "content": encoded}, tmp_path / "a.safetensors")
    with pytest.raises(WeightsError, match="is not a search index"):
        SearchIndex.load(tmp_path / "a.safetensors")


def test_prompts_for_queries_and_documents_are_those_of_the_model(pipeline: Pipeline) -> None:
    prompts = {"query": "the king ", "document": "the dog "}
    prompted = replace(pipeline, sentence=SentenceConfig(prompts=prompts))
    index = build_index(prompted, ["eats a"])
    assert index.prompt == "document" and index.texts == ["eats a"]
    torch.testing.assert_close(index.vectors, build_index(pipeline, ["the dog eats a"]).vectors)
    ((hit,),) = search(prompted, index, ["eats a"])
    similarity = torch.cosine_similarity(*embed(pipeline, ["the king eats a", "the dog eats a"]), dim=0)
    assert hit.score == pytest.approx(similarity.item(), abs=1e-5)


def test_the_words_of_word_vectors_are_an_index(tmp_path: Path, pipeline: Pipeline) -> None:
    words = load_pipeline(train_runs(tmp_path, "word2vec")["word2vec"], device="cpu")
    index = vocabulary_index(words)
    assert "king" in index.texts and not any(text.startswith("<") for text in index.texts)
    assert search(words, index, ["king"], top_k=1)[0][0].text == "king"
    with pytest.raises(ConfigError, match="--index FILE"):
        vocabulary_index(pipeline)


def test_top_k_below_one_is_an_error(pipeline: Pipeline) -> None:
    with pytest.raises(ConfigError, match="top_k of at least 1"):
        search(pipeline, build_index(pipeline, TEXTS), ["a"], top_k=0)
