"""Where a MaxText has other functions than those that are known, it trains without Holdfast."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from holdfast.adapters.maxtext import _is_too_late, install
from holdfast.adapters.maxtext_saves import MaxTextSaves
from holdfast.errors import ConfigurationError
from holdfast.session.framework_loop import FrameworkLoop

OURS, THEIRS = "holdfast.compat.ml_goodput_measurement.auto", "maxtext.common.goodput"


def modules() -> dict[str, Any]:
    """Of MaxText, as far as they are stood in for."""

    def maybe_save_checkpoint(checkpoint_manager, state, config, data_iterator, step=None):
        raise AssertionError("it is stood in for")

    def save_checkpoint(
        checkpoint_manager, step, state, config=None, data_iterator=None, force=False
    ):
        return True

    return {
        "train": SimpleNamespace(get_first_step=lambda model, state: 0),
        "checkpointing": SimpleNamespace(
            create_orbax_checkpoint_manager=lambda *_: None,
            latest_step=lambda checkpoint_manager: 7,
            load_state_if_possible=lambda *_, **__: ("state", None),
            all_steps=lambda checkpoint_manager: [7],
            wait_until_finished=lambda checkpoint_manager: None,
            maybe_save_checkpoint=maybe_save_checkpoint,
            save_checkpoint=save_checkpoint,
        ),
        "train_utils": SimpleNamespace(
            validate_completed_steps=lambda completed_steps, config_steps: None
        ),
    }


def installed(theirs: dict[str, Any]) -> bool:
    return install(SimpleNamespace(name="r"), **theirs) is not None  # type: ignore[arg-type]


def test_the_one_that_is_known_is_stood_in_for() -> None:
    theirs = modules()
    save = theirs["checkpointing"].maybe_save_checkpoint
    assert installed(theirs)
    assert theirs["checkpointing"].maybe_save_checkpoint is not save
    theirs["checkpointing"].maybe_save_checkpoint("manager", {}, "config", "data")  # the last again
    assert theirs["checkpointing"].latest_step("another manager") == 7


@pytest.mark.parametrize(
    ("module", "name", "other", "said"),
    [
        ("checkpointing", "maybe_save_checkpoint", None, "maybe_save_checkpoint"),
        ("checkpointing", "maybe_save_checkpoint", lambda manager, state: None, "no config"),
        ("checkpointing", "latest_step", lambda: None, "takes no checkpoint_manager"),
        ("checkpointing", "wait_until_finished", None, "wait_until_finished"),
        ("checkpointing", "load_state_if_possible", None, "load_state_if_possible"),
        ("train", "get_first_step", None, "get_first_step"),
        ("train_utils", "validate_completed_steps", lambda steps: None, "takes no completed_steps"),
    ],
)
def test_another_one_trains_as_it_is(
    module: str, name: str, other: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = modules()
    if other is None:
        delattr(theirs[module], name)
    else:
        setattr(theirs[module], name, other)
    before = {key: dict(vars(one)) for key, one in theirs.items()}
    assert not installed(theirs)
    assert {key: dict(vars(one)) for key, one in theirs.items()} == before
    told = capsys.readouterr().err
    assert said in told
    assert "it trains, and Holdfast saves nothing of it" in told


@pytest.mark.parametrize(
    ("imported", "is_told"),
    [([], False), ([THEIRS], True), ([THEIRS, OURS], False)],
    ids=["first", "after MaxText", "before it"],
)
def test_who_imports_maxtext_too_early_is_told_what_that_costs(
    monkeypatch: pytest.MonkeyPatch, imported: list[str], is_told: bool
) -> None:
    for name in (THEIRS, OURS):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in imported:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert ("count as training" in _is_too_late()) == is_told


def test_without_checkpoints_the_run_ends_with_a_sentence() -> None:
    theirs = modules()
    installed(theirs)
    theirs["train"].get_first_step(None, None)
    with pytest.raises(ConfigurationError, match="enable_checkpointing=true"):
        theirs["train_utils"].validate_completed_steps(0, 10)


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [(ValueError("shape (64,) is not (32,)"), ConfigurationError), (OSError("away"), KeyError)],
)
def test_a_checkpoint_of_another_model_is_told_in_a_sentence(
    refusal: Exception, kind: type[Exception]
) -> None:
    def load(*_: Any) -> None:
        try:
            raise refusal
        except Exception as error:
            raise KeyError("as Orbax puts it") from error

    saves = MaxTextSaves(SimpleNamespace(), modules()["checkpointing"])  # type: ignore[arg-type]
    writer = SimpleNamespace(open_span=lambda _: 0, close_span=lambda _: None)
    files, boundary = SimpleNamespace(folder=Path("tiny")), SimpleNamespace(writer=writer)
    saves._loop = FrameworkLoop(files, "29", boundary, None, None)  # type: ignore[arg-type]
    with pytest.raises(kind) as told:
        saves.load(load)
    if kind is ConfigurationError:
        assert "tiny/29 cannot be loaded (shape (64,) is not (32,))" in str(told.value)


@pytest.mark.real
def test_its_own_count_of_a_step_is_ours(tmp_path: Path) -> None:
    """Of its smallest configuration; it halves attention, for what causality leaves out."""
    pytest.importorskip("maxtext", reason="make trainers has MaxText")
    from maxtext.configs import pyconfig
    from maxtext.utils import maxtext_utils

    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "program"))
        import test_truth as truth
    sizes = truth.GPT_3_52K
    base = Path(pyconfig.__file__).parent / "base.yml"
    config = pyconfig.initialize(
        ["", str(base)], model_name="gpt3-52k", run_name="count", hardware="cpu",
        base_output_directory=str(tmp_path), enable_checkpointing=False,
        per_device_batch_size=sizes.batch, max_target_length=sizes.length,
    )  # fmt: skip
    total, weights, attention = maxtext_utils.calculate_tflops_training_per_device(
        config, log=False
    )
    assert (weights + 2 * attention) * 1e12 == pytest.approx(truth.train_step(sizes).model)
    ours = truth.dense_transformer(
        parameters=sizes.multiplied, layers=sizes.layers, heads=sizes.heads, head_size=sizes.head,
        sequence=sizes.length, tokens=sizes.tokens, causal_half=True,
    )  # fmt: skip
    assert total * 1e12 == pytest.approx(ours)
