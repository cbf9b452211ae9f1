"""What DistributedDataParallel keeps equal, as paths of the arrays that a set has of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from holdfast.session import replicated
from holdfast.session.contents import Contents
from holdfast.snapshot.compared import is_below
from holdfast.snapshot.modules import walked
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
    tree = contents.gather(None)
    below = set(contents.replicated(tree))
    leaves = flatten(tree).leaves
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


def test_its_state_is_that_of_stock_modules(alone: None) -> None:
    wrapper = DistributedDataParallel(net())
    found, asked = walked(wrapper), wrapper.state_dict()
    assert found is not None
    assert [*found] == [*asked]
    assert all(found[name].is_set_to(asked[name]) for name in asked)


def declared(contents: Contents) -> set[str]:
    return {path.removeprefix("parts/") for path in contents.replicated(contents.gather(None))}


LINEAR = {"first/weight", "first/bias"}


@pytest.fixture
def two(alone: None) -> tuple[Contents, Any, Any]:
    """Two tracked models; the first is wrapped, and what is equal has been asked for."""
    contents, first, second = Contents(), torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    contents.track({"first": first, "second": second})
    first.wrapper = [DistributedDataParallel(first)]  # a list: no module of it
    assert declared(contents) == LINEAR
    return contents, first, second


def test_a_model_that_is_wrapped_later(two: tuple[Contents, Any, Any]) -> None:
    contents, _, second = two
    wrapper = DistributedDataParallel(second)
    assert declared(contents) == LINEAR | {"second/weight", "second/bias"}
    del wrapper
    gc.collect()
    assert declared(contents) == LINEAR


def test_a_layer_that_is_added_later_is_not_until_it_is_wrapped(
    two: tuple[Contents, Any, Any],
) -> None:
    contents, first, _ = two
    first.head = torch.nn.Linear(2, 2)
    assert declared(contents) == LINEAR
    first.wrapper = [DistributedDataParallel(first)]
    gc.collect()
    assert declared(contents) == LINEAR | {"first/head.weight", "first/head.bias"}
    del first.head
    assert declared(contents) == LINEAR


def test_without_its_wrapper_a_model_is_not_though_another_one_lives(
    two: tuple[Contents, Any, Any],
) -> None:
    contents, first, _ = two
    wrapper = DistributedDataParallel(torch.nn.Linear(2, 2))
    assert declared(contents) == LINEAR
    del first.wrapper
    gc.collect()
    assert declared(contents) == set()
    del wrapper


def test_a_parameter_that_ddp_does_not_know_is_not(two: tuple[Contents, Any, Any]) -> None:
    contents, first, _ = two
    was, first.weight = first.weight, torch.nn.Parameter(torch.ones(2, 2))
    assert declared(contents) == {"first/bias"}
    first.weight = was
    assert declared(contents) == LINEAR
    del was
    for _ in range(100):  # whose place in memory others might get
        first.weight = torch.nn.Parameter(torch.ones(2, 2))
        assert declared(contents) == {"first/bias"}


def test_a_frozen_parameter_is_until_it_is_trained(alone: None) -> None:
    contents, model = Contents(), torch.nn.Linear(2, 2)
    contents.track({"first": model})
    model.weight.requires_grad_(False)
    wrapper = DistributedDataParallel(model)
    assert declared(contents) == LINEAR
    model.weight.requires_grad_(True)
    assert declared(contents) == {"first/bias"}, "no gradients of it are exchanged"
    model.bias.requires_grad_(False)
    assert declared(contents) == {"first/bias"}
    del wrapper


def test_what_ddp_is_told_to_leave_alone_is_not(alone: None) -> None:
    contents, model = Contents(), torch.nn.Linear(2, 2)
    contents.track({"first": model})
    ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    ignore(model, ["weight"])
    wrapper = DistributedDataParallel(model)
    assert declared(contents) == {"first/bias"}
    del wrapper


def test_a_model_with_hooks_that_has_to_be_asked(two: tuple[Contents, Any, Any]) -> None:
    contents, first, second = two
    for one in (first, second):
        one.register_state_dict_pre_hook(lambda *_: None)
    assert walked(first) is None
    assert declared(contents) == LINEAR


def test_tied_and_shared_parameters_have_all_their_names(alone: None) -> None:
    contents, layer = Contents(), torch.nn.Linear(2, 2)
    model = torch.nn.ModuleDict({"a": layer, "b": layer, "c": torch.nn.Linear(2, 2)})
    model["c"].weight = layer.weight
    contents.track({"m": model})
    wrapper = DistributedDataParallel(model)
    assert declared(contents) == {f"m/{name}" for name in model.state_dict()}
    layer.register_state_dict_pre_hook(lambda *_: None)  # and where it has to be asked
    assert declared(contents) == {f"m/{name}" for name in model.state_dict()}
    del wrapper


def test_an_optimizer_that_gets_more_parameters(two: tuple[Contents, Any, Any]) -> None:
    contents, first, second = two
    optimizer = torch.optim.SGD(first.parameters(), 0.1)
    contents.track({"optimizer": optimizer})
    assert declared(contents) == LINEAR | {"optimizer/state"}
    optimizer.add_param_group({"params": [second.weight]})
    assert declared(contents) == LINEAR
    first.wrapper.append(DistributedDataParallel(second))
    assert "optimizer/state" in declared(contents)


def test_before_there_is_a_wrapper_nothing_is() -> None:
    contents = Contents()
    contents.track({"model": net()})
    assert contents.replicated(contents.gather(None)) == ()
