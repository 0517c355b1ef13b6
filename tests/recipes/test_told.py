"""Values come from where they are said last, and everybody can see from where."""

from pathlib import Path

import pytest

from softlook.base.errors import ConfigError
from softlook.recipes.settings import TASKS, Lm, Tokens, Translate
from softlook.recipes.told import CHOSEN, DEFAULT, FLAG, Settled, defaults, flat, gather, nested, settle, told
from softlook.train.settings import Optim


def settled(asked: Lm, config: Path | None = None, environ: dict[str, str] | None = None) -> Settled[Lm]:
    return settle(gather(asked, config=config, environ=environ or {}), {"optim.lr": 0.5, "optim.clip": 2.0})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text('[optim]\nlr = 0.3\nbeta1 = 0.8\nbeta2 = 0.7\n[tokens]\nkind = "bytes"\n', encoding="utf-8")
    return path


def test_flags_go_before_the_environment_before_the_file_before_what_is_chosen_before_defaults(config: Path) -> None:
    environ = {"SOFTLOOK_OPTIM__BETA1": "0.6", "SOFTLOOK_OPTIM__BETA2": "0.5"}
    found = settled(Lm(optim=Optim(beta2=0.4)), config, environ)
    optim = found.settings.optim
    assert (optim.beta2, optim.beta1, optim.lr, optim.clip, optim.warmup) == (0.4, 0.6, 0.3, 2.0, 400)
    assert found.origins["optim.beta2"] == FLAG
    assert found.origins["optim.beta1"] == "environment SOFTLOOK_OPTIM__BETA1"
    assert found.origins["optim.lr"] == f"file {config}"
    assert (found.origins["optim.clip"], found.origins["optim.warmup"]) == (CHOSEN, DEFAULT)


def test_what_equals_the_default_but_was_said_counts_as_said() -> None:
    assert told(Lm(optim=Optim(lr=1e-3))).values == {"optim.lr": 1e-3}


def test_a_name_that_is_not_there_is_an_error_with_the_one_that_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[optim]\nlrr = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"run\.toml: there is no setting 'optim\.lrr'\. Did you mean 'optim\.lr'\?"):
        gather(Lm(), config=path)
    with pytest.raises(ConfigError, match=r"SOFTLOOK_OPTIM__LRR: there is no .* Did you mean 'optim\.lr'\?"):
        gather(Lm(), environ={"SOFTLOOK_OPTIM__LRR": "1"})


def test_variables_that_are_no_settings_are_left_alone() -> None:
    assert gather(Lm(), environ={"SOFTLOOK_DEBUG": "1", "PATH": "/bin"}).values == {}


def test_a_value_that_does_not_fit_says_where_it_came_from() -> None:
    with pytest.raises(ConfigError, match=r"optim\.lr: .*greater than 0; '-1' came \(environment SOFTLOOK_OPTIM__LR\)"):
        settled(Lm(), environ={"SOFTLOOK_OPTIM__LR": "-1"})


@pytest.mark.parametrize(
    ("text", "match"), [(None, "is not there"), ("lr = = 1", "is not TOML"), ("\udcff", "is not TOML")]
)
def test_a_file_that_cannot_be_read_is_an_error(text: str | None, match: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=match):
        gather(Lm(), config=path)


def test_paths_in_a_file_are_counted_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('data = "corpus.txt"\n', encoding="utf-8")
    assert gather(Lm(), config=path).values["data"] == (tmp_path / "corpus.txt",)


def test_from_is_from_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('from = "weights"\n', encoding="utf-8")
    by_file, by_hand = gather(Translate(), config=path), told(Translate(from_=Path("weights")))
    assert by_file.values["from"] == Path("weights")
    assert settle(by_hand, {}).settings.from_ == Path("weights")


@pytest.mark.parametrize("task", TASKS)
def test_every_setting_says_what_it_is(task: str) -> None:
    groups = [TASKS[task], *(type(value) for _, value in TASKS[task]() if hasattr(value, "model_fields_set"))]
    bare = [
        f"{group.__name__}.{name}"
        for group in groups
        for name, field in group.model_fields.items()
        if not field.description and not hasattr(field.default, "model_fields_set")
    ]
    assert not bare


@pytest.mark.parametrize("task", TASKS)
def test_names_come_apart_and_together_again(task: str) -> None:
    values = TASKS[task]().model_dump(by_alias=True)
    assert nested(flat(values)) == values
    assert defaults(TASKS[task]) == flat(values)


def test_a_run_can_be_settled_again_from_what_it_wrote() -> None:
    first = settle(told(Translate(tokens=Tokens(vocab=99), data=(Path("a"), Path("b")))), {"size.dim": 8})
    assert Translate.model_validate(nested(first.values())) == first.settings


def test_what_the_environment_says_has_its_kind(tmp_path: Path) -> None:
    said = gather(Lm(), environ={"SOFTLOOK_TRAINING__MINUTES": "3", "SOFTLOOK_FRESH": "true", "SOFTLOOK_DATA": "a.txt"})
    assert said.values == {"training.minutes": 3.0, "fresh": True, "data": (Path("a.txt"),)}
