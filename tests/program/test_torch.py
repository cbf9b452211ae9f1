"""torch's counter on meta tensors: attention is seen, and what is computed again is told apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from holdfast.errors import ConfigurationError
from holdfast.program import of_torch

BATCH, HEADS, LENGTH, SIZE = 2, 3, 5, 8
ATTENTION = 2 * 2 * BATCH * HEADS * LENGTH * LENGTH * SIZE  # forward: two products
LINEAR = 2 * BATCH * HEADS * LENGTH * SIZE * SIZE


class Model(nn.Module):
    def __init__(self, how: str = "plain") -> None:
        super().__init__()
        self.first, self.last = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.norm = nn.BatchNorm1d(HEADS * LENGTH)
        self.how = how

    def block(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.scaled_dot_product_attention(x, x, x)
        return self.norm(self.last(x).reshape(BATCH, -1, SIZE)).reshape(x.shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.how == "plain":
            return self.block(x)
        return checkpoint(self.block, x, use_reentrant=self.how == "reentrant")  # type: ignore[no-any-return]


X = torch.zeros(BATCH, HEADS, LENGTH, SIZE)


def test_attention_and_both_passes() -> None:
    found = of_torch(Model(), X)
    # Nobody asks the first layer for the gradient of its input.
    assert found.model == 5 * LINEAR + 3 * ATTENTION
    assert found.executed == found.model
    assert found.left_out == ()


@pytest.mark.parametrize("how", ["reentrant", "not"])
def test_what_is_computed_again_is_no_part_of_the_model(how: str) -> None:
    plain, again = of_torch(Model(), X), of_torch(Model(how), X)
    assert again.model == plain.model
    assert again.executed > plain.executed


def test_nothing_is_changed() -> None:
    model = Model()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    of_torch(model, X, loss=lambda module, x: module(x).square().mean())
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert all(one.grad is None and one.device.type == "cpu" for one in model.parameters())


def test_a_loss_that_looks_at_numbers_counts_forward_three_times() -> None:
    found = of_torch(Model(), X, loss=lambda module, x: module(x).sum() * module(x).sum().item())
    assert found.model == 3 * (2 * LINEAR + ATTENTION)
    assert "counts as twice the forward pass" in found.left_out[0]


def test_a_model_that_looks_at_numbers_is_not_counted() -> None:
    class Looks(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * x.sum().item()

    with pytest.raises(ConfigurationError, match=r"Looks cannot run on meta tensors.*run\.flops"):
        of_torch(Looks(), X)
