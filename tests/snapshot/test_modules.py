"""A module's state without `state_dict()`: the same for every tree, or asked for after all."""

from __future__ import annotations

import random
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations

from holdfast.errors import Unstorable
from holdfast.snapshot import modules
from holdfast.snapshot.modules import module_state, walked
from holdfast.snapshot.parts import part_state


@pytest.fixture(autouse=True)
def nothing_tried() -> None:
    modules._tried.clear()


def about(state: Any) -> list[tuple[Any, ...]]:
    """All that a copy of a state depends on."""
    return [
        (
            name,
            one.untyped_storage().data_ptr(),
            one.storage_offset(),
            one.shape,
            one.stride(),
            one.dtype,
            one.is_conj(),
        )
        for name, one in state.items()
    ]


def check_walked(module: Any) -> None:
    """It is walked, and gives the same, before its classes have been tried and after that."""
    for _ in range(2):
        found = walked(module)
        assert type(found) is type(module.state_dict()) is OrderedDict
        assert about(found) == about(module.state_dict())


def check_asked(module: Any) -> None:
    for _ in range(2):
        assert walked(module) is None
        assert repr(module_state(module)) == repr(module.state_dict())


class Block(nn.Module):
    """Anything that a module may hold, in any order."""

    def __init__(self, chance: random.Random, depth: int, others: list[Any]) -> None:
        super().__init__()
        for number in range(chance.randint(2, 6)):
            name = f"{chance.choice('abc')}{number}"
            kind = chance.choice(["parameter", "buffer", "tied", "module", "module", "shared"])
            if kind == "parameter":
                whole = torch.arange(24.0).to(chance.choice([torch.float64, torch.complex64]))
                one = nn.Parameter(whole[4:].view(4, 5)[:, 1:], chance.random() < 0.5)
                self.register_parameter(name, chance.choice([one, None]))
            elif kind == "buffer":
                one = chance.choice([torch.arange(3), torch.ones(2).as_subclass(Special), None])
                self.register_buffer(name, one, persistent=chance.random() < 0.5)
            elif kind == "module":
                self.add_module(name, one := tree(chance, depth - 1, others))
                others += [one] if one is not None else []
            elif kind == "shared" and others:
                self.add_module(name, chance.choice(others))
            elif kind == "tied" and (there := parameters(others)):
                self.register_parameter(name, chance.choice(there))


class Special(torch.Tensor):
    pass


class Renamed(nn.Linear):
    """A class of a script's own, as most are."""


LEAVES: list[Callable[[], Any]] = [
    lambda: None,
    lambda: Renamed(2, 3),
    lambda: nn.Linear(2, 2, bias=False),
    lambda: nn.BatchNorm1d(2),
    lambda: nn.BatchNorm1d(2, affine=False, track_running_stats=False),
    lambda: nn.LSTM(2, 2, num_layers=2),
    lambda: nn.MultiheadAttention(2, 1),
    lambda: nn.Embedding(3, 2, padding_idx=0, max_norm=1.0),
    nn.ReLU,
    lambda: nn.ParameterList([nn.Parameter(torch.ones(2)), torch.ones(1)]),
    lambda: nn.ParameterDict({"b": nn.Parameter(torch.ones(2)), "a": torch.ones(1)}),
    lambda: parametrizations.orthogonal(nn.Linear(2, 2)),
    lambda: parametrizations.weight_norm(nn.Linear(2, 2)),
    lambda: nn.Linear(2, 2).requires_grad_(False),
]


def tree(chance: random.Random, depth: int, others: list[Any]) -> Any:
    if depth == 0 or chance.random() < 0.3:
        return chance.choice(LEAVES)()
    inside = [tree(chance, depth - 1, others) for _ in range(chance.randint(1, 3))]
    there = [one for one in inside if one is not None]
    kinds: list[Callable[[], Any]] = [
        lambda: nn.Sequential(*there),
        lambda: nn.ModuleList(inside),
        lambda: nn.ModuleDict({f"{number}n": one for number, one in enumerate(inside)}),
        lambda: Block(chance, depth, others),
    ]
    return chance.choice(kinds)()


def parameters(some: list[Any]) -> list[Any]:
    return [one for module in some for one in module.parameters()]


def change(module: Any, chance: random.Random) -> None:
    """What a script may do between two copies."""
    one = chance.choice([*module.modules()])
    names = [*one._parameters], [*one._buffers], [*one._modules]
    kind = chance.choice(["add", "freeze", "replace", "none", "buffer", "less", "moved"])
    if kind == "add" and not isinstance(one, nn.ModuleList | nn.ParameterList | nn.ParameterDict):
        one.add_module("added", nn.Linear(1, 1))
    elif kind == "freeze" and (there := [p for p in one.parameters() if p.is_leaf]):
        chance.choice(there).requires_grad_(chance.random() < 0.5)
    elif kind == "replace" and names[0]:
        one._parameters[chance.choice(names[0])] = nn.Parameter(torch.ones(3))
    elif kind == "none" and names[0]:
        one._parameters[chance.choice(names[0])] = None
    elif kind == "buffer" and names[1]:
        one._buffers[chance.choice(names[1])] = chance.choice([None, torch.zeros(2)])
    elif kind == "less" and names[2]:
        one._modules.pop(chance.choice(names[2]))
    elif kind == "moved":
        for parameter in one.parameters():
            parameter.data = parameter.data.clone()  # other memory, the same object


@given(st.randoms(use_true_random=False))
def test_the_walk_gives_what_state_dict_gives(chance: random.Random) -> None:
    module = Block(chance, 3, [])
    check_walked(module)
    for _ in range(3):
        change(module, chance)
        check_walked(module)


def test_stock_models() -> None:
    check_walked(nn.TransformerDecoderLayer(8, 2, 8))
    tied = nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 3, bias=False))
    tied[1].weight = tied[0].weight
    check_walked(tied)
    lazy = nn.Sequential(nn.LazyLinear(2))
    check_asked(lazy)
    lazy(torch.ones(1, 3))
    check_walked(lazy)  # it has become a plain one


@pytest.mark.real  # importing the compiler takes seconds
def test_a_compiled_model() -> None:
    module = torch.compile(nn.Sequential(nn.Linear(1, 1)), backend="eager")
    check_walked(module)
    assert [*module_state(module)] == ["_orig_mod.0.weight", "_orig_mod.0.bias"]


class Extra(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"a": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


class Saves(nn.Linear):
    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}more"] = torch.ones(1)


class Asked(nn.Linear):
    def state_dict(self, *args: Any, **more: Any) -> Any:
        return {f"x.{name}": one for name, one in super().state_dict(*args, **more).items()}


def hooked(module: Any) -> Any:
    module._register_state_dict_hook(lambda _, state, prefix, __: state.pop(f"{prefix}bias"))
    return module


def hooked_before(module: Any) -> Any:
    module.register_state_dict_pre_hook(lambda *_: None)
    return module


def patched(module: Any, name: str) -> Any:
    """As adapters of large models do, with one instance."""
    original = getattr(module, name)

    def own(_: Any, *args: Any, **more: Any) -> Any:
        return original(*args, **more)

    setattr(module, name, types.MethodType(own, module))
    return module


ODD: dict[str, Callable[[], Any]] = {
    "extra state": lambda: Extra(1, 1),
    "a part of its own": lambda: Saves(1, 1),
    "its own way": lambda: Asked(1, 1),
    "a hook": lambda: hooked(nn.Linear(1, 1)),
    "a hook before": lambda: hooked_before(nn.Linear(1, 1)),
    "a patched instance": lambda: patched(nn.Linear(1, 1), "state_dict"),
    "a patched part": lambda: patched(nn.Linear(1, 1), "_save_to_state_dict"),
    "old spectral norm": lambda: nn.utils.spectral_norm(nn.Linear(1, 1)),
    "quantized": lambda: torch.ao.nn.quantized.Linear(1, 1),
    "an observer": torch.ao.quantization.FakeQuantize,
    "lazy": lambda: nn.LazyLinear(1),
}


@pytest.mark.filterwarnings("ignore:.*quantize.*:UserWarning")
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("is_tried", [True, False])
def test_what_answers_in_its_own_way_is_asked(kind: str, *, is_tried: bool) -> None:
    if is_tried:
        check_walked(nn.Linear(1, 1))
    check_asked(ODD[kind]())
    check_asked(nn.Sequential(nn.Linear(1, 1), nn.ModuleDict({"inner": ODD[kind]()})))


def test_a_hook_that_comes_later() -> None:
    module = nn.Sequential(nn.Linear(1, 1))
    check_walked(module)
    hook = module[0]._register_state_dict_hook(lambda _, state, prefix, __: state.clear())
    check_asked(module)
    hook.remove()
    check_walked(module)


def test_a_class_that_is_patched_later(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(Renamed(1, 1))
    check_walked(module)
    monkeypatch.setattr(Renamed, "get_extra_state", lambda _: {"a": 1})
    check_asked(module)


def test_pytorch_patched_by_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Linear(1, 1))
    check_walked(module)
    original = nn.Module._save_to_state_dict

    def other(self: Any, destination: Any, prefix: str, keep_vars: bool) -> None:
        original(self, destination, f"{prefix}other.", keep_vars)

    monkeypatch.setattr(nn.Module, "_save_to_state_dict", other)
    check_asked(module)


def test_a_pytorch_that_keeps_them_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is walked is private: a version may leave something out of it, or have it no longer."""

    class Elsewhere(nn.Linear):
        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            return {**found, "more": torch.ones(1)} if name == "_buffers" else found

    check_asked(Elsewhere(1, 1))
    module = nn.Linear(1, 1)
    del module._non_persistent_buffers_set
    module._buffers["b"] = None
    assert walked(module) is None


def test_a_cycle_is_an_error_with_a_path() -> None:
    module = nn.Sequential(nn.Linear(1, 1))
    module[0].add_module("back", module)
    with pytest.raises(Unstorable, match=r"parts/model: .* failed: RecursionError"):
        part_state(module, "parts/model")
