"""What DistributedDataParallel keeps equal, as paths of the arrays that a set has of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from holdfast.session import replicated
from holdfast.session.contents import Contents
from holdfast.snapshot.split import is_below
from holdfast.snapshot.tree import flatten


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    replicated._wrappers.clear()


def net() -> Any:
    parts = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)
    return torch.nn.Sequential(*parts)


def trained(contents: Contents, model: Any, wrapper: Any, optimizer: Any) -> set[str]:
    """One step; the paths of all arrays that are said to be equal on all ranks."""
    contents.track({"model": model, "optimizer": optimizer})
    wrapper(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    below = set(contents.replicated())
    leaves = flatten(contents.gather(None)).leaves
    return {leaf.path for leaf in leaves if is_below(leaf.path, below)}


PARAMETERS = {f"parts/model/{number}.{name}" for number in (0, 1, 2) for name in ("weight", "bias")}


def test_parameters_and_the_state_of_their_optimizer(alone: None) -> None:
    contents, model = Contents(), net()
    wrapper = DistributedDataParallel(model)
    found = trained(contents, model, wrapper, torch.optim.AdamW(model.parameters()))
    state = {path for path in found if path.startswith("parts/optimizer/state/")}
    assert len(state) == 6 * 3
    assert found - state == PARAMETERS, "running statistics are each rank's own"


def test_a_wrapper_that_is_tracked_itself(alone: None) -> None:
    contents = Contents()
    wrapper = DistributedDataParallel(net())
    found = trained(contents, wrapper, wrapper, torch.optim.SGD(wrapper.parameters(), 0.1))
    assert found == {path.replace("/model/", "/model/module.") for path in PARAMETERS}


def test_a_model_that_nobody_wraps_is_not(alone: None) -> None:
    contents, model = Contents(), net()
    DistributedDataParallel(net())
    assert not trained(contents, model, model, torch.optim.AdamW(model.parameters()))


def test_an_optimizer_with_parameters_of_its_own_is_not(alone: None) -> None:
    contents, model = Contents(), net()
    wrapper = DistributedDataParallel(model)
    extra = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([*model.parameters(), extra])
    assert trained(contents, model, wrapper, optimizer) == PARAMETERS


def test_before_there_is_a_wrapper_nothing_is() -> None:
    contents = Contents()
    contents.track({"model": net()})
    assert contents.replicated() == ()
