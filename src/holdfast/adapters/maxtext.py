"""MaxText, as it is: `holdfast run -- python -m holdfast.adapters.maxtext CONFIG KEY=VALUE…`.

MaxText's own `main`, with some of its functions stood in for. `maybe_save_checkpoint` saves when
the run wants it and stops with code 75, `latest_step` answers which checkpoint to go on from. Its
goodput recorder writes into the run, without a cloud. These names are private to MaxText: where one
of them is gone or takes something else, that is said, and MaxText trains as without Holdfast.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib.metadata import version
from typing import Any

from holdfast.adapters.maxtext_saves import MaxTextSaves
from holdfast.adapters.versions import check_version
from holdfast.session.hooks import arguments
from holdfast.session.run import Run
from holdfast.session.say import say
from holdfast.session.start import start

TRIED = ("0.2.5", "0.2.5")


def install(run: Run, train: Any, checkpointing: Any, train_utils: Any) -> MaxTextSaves | None:
    """Stand in for functions of these modules of MaxText; None: it has others, which was said."""
    try:
        saves = MaxTextSaves(run, checkpointing)
        make, first_step = checkpointing.create_orbax_checkpoint_manager, train.get_first_step
        needed = "checkpoint_manager", "state", "config", "data_iterator", "step"
        of_save = arguments(checkpointing.maybe_save_checkpoint, *needed)
        validate, load = train_utils.validate_completed_steps, checkpointing.load_state_if_possible
        of_validate = arguments(validate, "completed_steps", "config_steps")
        arguments(checkpointing.latest_step, "checkpoint_manager")
        arguments(checkpointing.save_checkpoint, *needed, "force")
        _ = checkpointing.all_steps, checkpointing.wait_until_finished
    except AttributeError as error:
        say(f"MaxText has no hook that fits ({error}): it trains, and Holdfast saves nothing of it")
        return None

    def made(*args: Any, **kwargs: Any) -> Any:
        manager = make(*args, **kwargs)
        if manager is not None:
            saves.meet(manager)
        return manager

    def saved(*args: Any, **kwargs: Any) -> Any:
        given = of_save(*args, **kwargs)
        if given.get("step") is not None:  # without one, the last step again
            saves.save(given["state"], given["config"], given["data_iterator"], int(given["step"]))

    def restored(*args: Any, **kwargs: Any) -> Any:
        saves.has_restored = True
        return first_step(*args, **kwargs)

    def validated(*args: Any, **kwargs: Any) -> Any:
        given = of_validate(*args, **kwargs)
        done, until = given["completed_steps"], given["config_steps"]
        if saves.has_restored or done >= until:  # before that, too, it is asked: is it worth it?
            saves.begin(done, until)

    train.get_first_step = restored
    checkpointing.create_orbax_checkpoint_manager = made
    checkpointing.load_state_if_possible = partial(saves.load, load)
    checkpointing.maybe_save_checkpoint = saved
    checkpointing.latest_step = saves.latest_step
    train_utils.validate_completed_steps = validated
    return saves


def main(argv: list[str]) -> None:
    """Train as `python -m maxtext.trainers.pre_train.train` does."""
    if why := _is_too_late():
        say(why)
    import holdfast.compat.ml_goodput_measurement.auto  # noqa: F401 - MaxText's recorder is ours

    check_version("MaxText", version("maxtext"), TRIED)
    from absl import app
    from maxtext.common import checkpointing
    from maxtext.trainers.pre_train import train
    from maxtext.utils import train_utils

    saves = install(start(), train, checkpointing, train_utils)
    try:
        app.run(train.main, argv=[*argv, *_recording(argv)])
    except SystemExit as end:
        if not end.code and saves is not None:
            saves.finish()
        raise


def _is_too_late() -> str:
    """Why MaxText has another recorder than ours by now; "": it has not."""
    ours, theirs = "holdfast.compat.ml_goodput_measurement.auto", "maxtext.common.goodput"
    if theirs not in sys.modules or ours in sys.modules:
        return ""
    return (
        "MaxText was imported before holdfast.adapters.maxtext.main was called, so its waits for "
        f"data count as training: import {ours} first"
    )


def _recording(argv: list[str]) -> list[str]:
    """Its recorder tells waits for data; what it would send to a cloud is not asked for."""
    wanted = {"enable_goodput_recording": "true", "monitor_goodput": "false"}
    return [
        f"{name}={value}"
        for name, value in wanted.items()
        if not any(word.startswith(f"{name}=") for word in argv)
    ]


if __name__ == "__main__":
    main(sys.argv)
