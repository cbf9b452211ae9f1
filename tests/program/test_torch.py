"""torch's counter on meta tensors: attention is seen, and what is computed again is told apart."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from holdfast.errors import ConfigurationError
from holdfast.program import flex_attention, of_torch, of_torch_step
from holdfast.program.torch_ops import ANSWERED, Counter

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
    assert found.model == 3 * (4 * LINEAR + 2 * ATTENTION), "of two forward passes"
    assert "counts as twice the forward pass" in found.left_out[0]


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"3 is no torch\.nn\.Module"):
        of_torch(3, X)  # type: ignore[arg-type]


def test_a_model_that_looks_at_numbers_is_not_counted() -> None:
    class Looks(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * x.sum().item()

    with pytest.raises(ConfigurationError, match=r"Looks cannot run on meta tensors.*run\.flops"):
        of_torch(Looks(), X)


# --- Steps ----------------------------------------------------------------------------------------


def trained(**how: Any) -> tuple[Model, torch.optim.Optimizer]:
    """A model, and an optimizer that has gradients and momentum already."""
    model = Model(**how)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(X + 1).square().sum().backward()
    optimizer.step()
    return model, optimizer


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    gradients = {name: one.grad for name, one in model.named_parameters()}
    return model.state_dict(), gradients, optimizer.state_dict()


@pytest.mark.parametrize("asks", [False, True], ids=["", "and asks for the loss"])
def test_a_whole_step_is_counted_and_changes_nothing(asks: bool) -> None:
    model, optimizer = trained()
    seen = torch.zeros(())

    def step(x: torch.Tensor) -> float:
        optimizer.zero_grad()
        for _ in range(2):
            model(x).square().mean().backward()
        seen.add_(x.sum())
        optimizer.step()
        return model(x).sum().item() if asks else 0.0

    before = copy.deepcopy(everything(model, optimizer))
    found = of_torch_step(step, model, X)
    accumulated = 2 * of_torch(Model(), X).model
    assert str(everything(model, optimizer)) == str(before)
    assert seen == 0
    if asks:  # after another forward pass: what was gone back from is not known to be all
        assert found.model == 3 * 3 * (2 * LINEAR + ATTENTION)
        assert "counts as twice the forward pass" in found.left_out[0]
    else:
        assert (found.model, found.left_out) == (accumulated, ())


def test_a_pass_without_gradients_counts_once_and_hides_no_backward_pass() -> None:
    """It was taken for one that waits for its backward pass, and all counted three times."""
    model, optimizer = trained()

    def step(x: torch.Tensor) -> float:
        model(x).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            return model(x).sum().item()

    forward = 2 * LINEAR + ATTENTION
    assert of_torch_step(step, model, X).model == of_torch(Model(), X).model + forward

    def asks_before(x: torch.Tensor) -> None:
        with torch.no_grad():
            target = model(x)
        (model(x) - target).sum().item()

    assert of_torch_step(asks_before, model, X).model == 3 * forward + forward


def test_a_yes_or_no_is_answered_and_said() -> None:
    """As transformers asks a mask whether it leaves anything out."""

    class Masked(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x if (x > 0).all() else x + 1)

    model = Masked()
    found = of_torch(model, X)
    assert found.model == of_torch(Model(), X).model
    assert found.left_out == (ANSWERED,)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def careful(x: torch.Tensor) -> None:
        loss = model(x).square().mean()
        if torch.isfinite(loss):
            loss.backward()
            optimizer.step()

    found = of_torch_step(careful, model, X)
    assert found.model == 3 * (2 * LINEAR + ATTENTION)
    assert "the backward pass, which it then left out" in found.left_out[1]


def test_a_loop_that_waits_for_a_yes_ends() -> None:
    def forever(x: torch.Tensor) -> None:
        while not (model(x) > 0).all():
            pass

    model = nn.Linear(SIZE, SIZE)
    assert "cannot run on meta tensors" in of_torch_step(forever, model, X).left_out[1]


def test_a_gradient_scaler_works_on() -> None:
    model, optimizer = trained()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def step(x: torch.Tensor) -> None:
        scaler.scale(model(x).square().mean()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    found = of_torch_step(step, model, X)
    assert (found.model, found.left_out) == (of_torch(Model(), X).model, ())
    step(X)
    assert scaler.get_scale() == 8


def test_a_module_without_a_tensor_asks_for_a_loss() -> None:
    class Wrapped(Model):
        def forward(self, x: torch.Tensor) -> Any:
            return SimpleNamespace(logits=super().forward(x))

    (gap,) = of_torch(Wrapped(), X).left_out
    assert "give loss=" in gap


def test_a_step_that_gives_its_loss_as_a_number() -> None:
    model, optimizer = trained()

    def step(x: torch.Tensor) -> float:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    found = of_torch_step(step, model, X)
    assert found.model == of_torch(Model(), X).model
    assert "what follows the backward pass" in found.left_out[0]


def test_a_step_of_two_models() -> None:
    first, second = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)

    def step(x: torch.Tensor) -> None:
        second(first(x)).sum().backward()

    assert of_torch_step(step, [first, second], torch.zeros(3, SIZE)).model == 5 * 2 * 3 * SIZE**2


def test_gradients_of_gradients_are_no_recomputation() -> None:
    model = nn.Sequential(nn.Linear(SIZE, SIZE), nn.Tanh(), nn.Linear(SIZE, 1))

    def penalty(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()
        (gradient,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        return gradient.square().sum()

    found = of_torch(model, torch.zeros(4, SIZE), loss=penalty)
    assert found.model == found.executed > 0
    assert found.left_out == ()


# --- Operations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"groups": 2}, {"dilation": 2}, {"stride": 2}])
def test_convolutions(how: dict[str, int]) -> None:
    conv = nn.Conv2d(4, 6, 3, **how)  # type: ignore[arg-type]
    x = torch.zeros(2, 4, 9, 9, requires_grad=True)
    out = conv(x)
    assert of_torch(conv, x).model == 3 * 2 * out.numel() * conv.weight[0].numel()


def test_a_transposed_convolution() -> None:
    conv = nn.ConvTranspose2d(4, 6, 3, stride=2)
    x = torch.zeros(2, 4, 9, 9, requires_grad=True)
    assert of_torch(conv, x).model == 3 * 2 * x.numel() * conv.weight[0].numel()


@pytest.mark.parametrize("how", [{}, {"is_causal": True}, {"enable_gqa": True}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_of_all_kinds(how: dict[str, bool], dtype: torch.dtype) -> None:
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones((), dtype=dtype))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            k = x[:, :2] if "enable_gqa" in how else x
            return functional.scaled_dot_product_attention(x * self.scale, k, k, **how)

    x = torch.zeros(BATCH, 4, LENGTH, SIZE, dtype=dtype, requires_grad=True)
    assert of_torch(Attends(), x).model == 3 * 2 * 2 * BATCH * 4 * LENGTH**2 * SIZE


def test_a_fused_attention_computes_its_scores_again() -> None:
    q = torch.zeros(BATCH, HEADS, LENGTH, SIZE, device="meta")
    with Counter() as counter:
        out, logsumexp, *rest = torch.ops.aten._scaled_dot_product_flash_attention(q, q, q)
        forward = counter.flops
        torch.ops.aten._scaled_dot_product_flash_attention_backward(
            q, q, q, q, out, logsumexp, *rest[:4], 0.0, False, *rest[4:6]
        )
    assert forward.model == ATTENTION
    assert counter.flops.model == 3 * ATTENTION
    assert counter.flops.executed == ATTENTION + ATTENTION // 2 * 5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_groups_of_rows(dtype: torch.dtype) -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, 16, 16, dtype=dtype))

        def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
            return torch._grouped_mm(x, self.weight, offs=ends)

    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("an older torch")
    ends = torch.tensor([16, 32, 48], dtype=torch.int32)
    found = of_torch(Experts(), torch.zeros(48, 16, dtype=dtype), ends)
    assert (found.model, found.left_out) == (2 * 2 * 48 * 16 * 16, ())
    operands = 48 * 16 + 3 * 16 * 16 + 48 * 16
    assert found.model_bytes >= 2 * dtype.itemsize * operands


def test_bytes() -> None:
    """Each operand and each result once, forward and twice backward."""
    layer, x = nn.Linear(4, 6, bias=False), torch.zeros(8, 4, requires_grad=True)
    found = of_torch(layer, x)
    assert found.model_bytes == found.executed_bytes == 3 * 4 * (4 * 6 + 8 * 4 + 8 * 6)


def test_what_has_no_formula_is_named() -> None:
    found = of_torch(nn.Bilinear(SIZE, SIZE, 3), torch.zeros(5, SIZE), torch.zeros(5, SIZE))
    assert found.left_out == ("aten::_trilinear: its FLOPs are not known",)


def test_norms_are_no_products() -> None:
    layer = nn.Linear(SIZE, SIZE)
    loss = lambda layer, x: torch.linalg.vector_norm(layer(x))  # noqa: E731
    assert of_torch(layer, torch.zeros(5, SIZE), loss=loss).left_out == ()


def test_tensors_of_its_own_and_those_it_makes() -> None:
    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.angles = nn.Linear(SIZE, SIZE), torch.ones(LENGTH, SIZE)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x + torch.arange(SIZE)) * self.angles

    model = Tables()
    assert of_torch(model, torch.zeros(BATCH, LENGTH, SIZE)).left_out == ()
    assert model.angles.device.type == "cpu"


@pytest.mark.parametrize("place", [True, False], ids=["itself", "a wrapper"])
def test_compiled_modules_are_counted_as_they_were(place: bool) -> None:
    model: Any = Model()
    plain = of_torch(model, X)
    if place:
        model.compile(backend="eager")
    assert of_torch(model if place else torch.compile(model, backend="eager"), X) == plain


def test_flex_attention_by_its_mask() -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    mask = flex.create_block_mask(
        lambda b, h, q, k: q >= k, None, None, 512, 512, device="cpu", BLOCK_SIZE=128
    )
    found = flex_attention(mask, heads=4, head_size=16, batch=2)
    assert found == 3 * 4 * 16 * (1 + 2 + 3 + 4) * 128 * 128 * 4 * 2
    with pytest.raises(ConfigurationError, match="heads=0"):
        flex_attention(mask, heads=0, head_size=16)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """This process is a group of its own."""
    store = torch.distributed.FileStore(str(tmp_path / "group"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_sharded_weights_are_refused_and_work_on() -> None:
    from torch.distributed.fsdp import fully_shard

    model = nn.Linear(SIZE, SIZE)
    fully_shard(model)
    with pytest.raises(ConfigurationError, match="count it before fully_shard"):
        of_torch(model, torch.zeros(3, SIZE))
    model(torch.zeros(3, SIZE)).sum().backward()


@pytest.mark.usefixtures("alone")
def test_data_parallel_modules_work_on() -> None:
    model = nn.parallel.DistributedDataParallel(nn.Linear(SIZE, SIZE))
    found = of_torch(model, torch.zeros(3, SIZE))
    assert found.model == 2 * 2 * 3 * SIZE**2
    for _ in range(2):
        model(torch.zeros(3, SIZE)).sum().backward()
