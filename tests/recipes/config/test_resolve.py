"""Precedence, origins and validation of config values."""

from pathlib import Path

import pytest

from softlook.base.errors import ConfigError
from softlook.recipes.config.resolve import (
    ResolvedConfig,
    ValueOrigin,
    default_values,
    explicit_overrides,
    flatten,
    load_overrides,
    resolve_config,
    unflatten,
)
from softlook.recipes.config.schema import CausalLMConfig, TokenizerConfig, TranslationConfig
from softlook.recipes.tasks import TASKS
from softlook.train.config import OptimizerConfig


def resolved(
    config: CausalLMConfig, file: Path | None = None, environ: dict[str, str] | None = None
) -> ResolvedConfig[CausalLMConfig]:
    return resolve_config(
        load_overrides(config, config=file, environ=environ or {}), {"optim.lr": 0.5, "optim.grad_clip": 2.0}
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text('[optim]\nlr = 0.3\nbeta1 = 0.8\nbeta2 = 0.7\n[tokenizer]\ntype = "bytes"\n', encoding="utf-8")
    return path


def test_precedence_of_flags_environment_file_automatic_values_and_defaults(config: Path) -> None:
    environ = {"SOFTLOOK_OPTIM__BETA1": "0.6", "SOFTLOOK_OPTIM__BETA2": "0.5"}
    found = resolved(CausalLMConfig(optim=OptimizerConfig(beta2=0.4)), config, environ)
    optim = found.config.optim
    assert (optim.beta2, optim.beta1, optim.lr, optim.grad_clip, optim.warmup) == (0.4, 0.6, 0.3, 2.0, 400)
    assert found.origins["optim.beta2"] == ValueOrigin.FLAG
    assert found.origins["optim.beta1"] == "environment SOFTLOOK_OPTIM__BETA1"
    assert found.origins["optim.lr"] == f"file {config}"
    assert (found.origins["optim.grad_clip"], found.origins["optim.warmup"]) == (ValueOrigin.AUTO, ValueOrigin.DEFAULT)


def test_an_explicit_value_equal_to_the_default_is_an_override() -> None:
    assert explicit_overrides(CausalLMConfig(optim=OptimizerConfig(lr=1e-3))).values == {"optim.lr": 1e-3}


def test_an_unknown_name_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[optim]\nlrr = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"run\.toml: unknown setting 'optim\.lrr'\. Did you mean 'optim\.lr'\?"):
        load_overrides(CausalLMConfig(), config=path)
    with pytest.raises(ConfigError, match=r"SOFTLOOK_OPTIM__LRR: unknown setting .* Did you mean 'optim\.lr'\?"):
        load_overrides(CausalLMConfig(), environ={"SOFTLOOK_OPTIM__LRR": "1"})


def test_unrelated_environment_variables_are_ignored() -> None:
    assert load_overrides(CausalLMConfig(), environ={"SOFTLOOK_DEBUG": "1", "PATH": "/bin"}).values == {}


def test_an_invalid_value_is_reported_with_its_origin() -> None:
    with pytest.raises(ConfigError, match=r"optim\.lr: .*greater than 0; got '-1' \(environment SOFTLOOK_OPTIM__LR\)"):
        resolved(CausalLMConfig(), environ={"SOFTLOOK_OPTIM__LR": "-1"})


@pytest.mark.parametrize(
    ("text", "match"), [(None, "does not exist"), ("lr = = 1", "is not valid TOML"), ("\udcff", "is not valid TOML")]
)
def test_an_unreadable_config_file_is_an_error(text: str | None, match: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=match):
        load_overrides(CausalLMConfig(), config=path)


def test_paths_in_a_config_file_are_relative_to_it(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('data = "corpus.txt"\n', encoding="utf-8")
    assert load_overrides(CausalLMConfig(), config=path).values["data"] == (tmp_path / "corpus.txt",)


def test_init_from_in_a_file_and_in_python(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('init_from = "weights"\n', encoding="utf-8")
    from_file, from_python = (
        load_overrides(TranslationConfig(), config=path),
        explicit_overrides(TranslationConfig(init_from=Path("weights"))),
    )
    assert from_file.values["init_from"] == Path("weights")
    assert resolve_config(from_python, {}).config.init_from == Path("weights")


@pytest.mark.parametrize("task", TASKS)
def test_every_field_has_a_description(task: str) -> None:
    groups = [TASKS[task], *(type(value) for _, value in TASKS[task]() if hasattr(value, "model_fields_set"))]
    undocumented = [
        f"{group.__name__}.{name}"
        for group in groups
        for name, field in group.model_fields.items()
        if not field.description and not hasattr(field.default, "model_fields_set")
    ]
    assert not undocumented


@pytest.mark.parametrize("task", TASKS)
def test_unflatten_is_the_inverse_of_flatten(task: str) -> None:
    values = TASKS[task]().model_dump()
    assert unflatten(flatten(values)) == values
    assert default_values(TASKS[task]) == flatten(values)


def test_a_config_round_trips_through_its_values() -> None:
    first = resolve_config(
        explicit_overrides(TranslationConfig(tokenizer=TokenizerConfig(vocab_size=99), data=(Path("a"), Path("b")))),
        {"model.dim": 8},
    )
    assert TranslationConfig.model_validate(unflatten(first.values())) == first.config


def test_environment_values_are_parsed_by_the_schema(tmp_path: Path) -> None:
    overrides = load_overrides(
        CausalLMConfig(),
        environ={"SOFTLOOK_TRAINING__MAX_MINUTES": "3", "SOFTLOOK_FRESH": "true", "SOFTLOOK_DATA": "a.txt"},
    )
    assert overrides.values == {"training.max_minutes": 3.0, "fresh": True, "data": (Path("a.txt"),)}
