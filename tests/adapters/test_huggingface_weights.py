"""Which checkpoints have a model's weights, by names and shapes: in one file, and in several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

weights = pytest.importorskip("holdfast.adapters.huggingface_weights")
check_weights, renamed_weights = weights.check_weights, weights.renamed_weights
save_file = pytest.importorskip("safetensors.torch").save_file


class Tied(nn.Module):
    """As language models are: what they read words by, they say words by."""

    def __init__(self, layers: int = 2, width: int = 4) -> None:
        super().__init__()
        self.words, self.says = nn.Embedding(7, width), nn.Linear(width, 7, bias=False)
        self.says.weight = self.words.weight
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))


def save(model: nn.Module, folder: Path, files: int) -> None:
    """As Hugging Face does: of what is tied, once."""
    state = {name: one for name, one in model.state_dict().items() if name != "says.weight"}
    if files == 1:
        save_file(state, folder / "model.safetensors")
        return
    names: dict[str, str] = {}
    for n in range(files):
        part = {name: state[name] for name in list(state)[n::files]}
        names |= dict.fromkeys(part, f"model-{n}.safetensors")
        save_file(part, folder / f"model-{n}.safetensors")
    index = {"metadata": {}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("files", [1, 3])
def test_other_names_and_other_shapes_are_told(files: int, tmp_path: Path) -> None:
    save(Tied(), tmp_path, files)
    check_weights(Tied(), tmp_path)
    for other, told in (
        (Tied(layers=3), r"it has no layers\.2\.weight, and the model has one"),
        (Tied(layers=1), r"it has a layers\.1\.(bias|weight), and the model has none"),
        (Tied(width=6), r"its words\.weight is \[7, 4\], and the model's \[7, 6\]"),
    ):
        with pytest.raises(ValueError, match=told):
            check_weights(other, tmp_path)


def test_what_a_model_never_saves_is_not_missed(tmp_path: Path) -> None:
    save(Tied(), tmp_path, 1)
    model = Tied()
    model.register_buffer("cache", torch.zeros(3))
    with pytest.raises(ValueError, match="it has no cache"):
        check_weights(model, tmp_path)
    model._keys_to_ignore_on_save = {"cache"}
    check_weights(model, tmp_path)


def test_other_files_are_not_compared(tmp_path: Path) -> None:
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    check_weights(Tied(), tmp_path)


@pytest.mark.parametrize("name", ["global_step5", "pytorch_model_fsdp_0"])
def test_what_the_trainer_does_not_restore_from_is_not_compared(name: str, tmp_path: Path) -> None:
    save(Tied(), tmp_path, 1)
    (tmp_path / name).mkdir()
    check_weights(Tied(layers=3), tmp_path)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_experts_that_transformers_renames_are_found(kind: torch.dtype, tmp_path: Path) -> None:
    model = experts(layers=2).to(kind)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="it has no"):
        check_weights(model, tmp_path)
    found = renamed_weights(experts(layers=2).to(kind), tmp_path)
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(one, found[name]) for name, one in model.state_dict().items())
    for other in (experts(layers=3).to(kind), Tied()):
        with pytest.raises(ValueError, match="it has no"):
            renamed_weights(other, tmp_path)


def experts(layers: int) -> nn.Module:
    """A model as in the Trainer's hands, small."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 97, "hidden_size": 16, "intermediate_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": 4}
    config = transformers.MixtralConfig(**sizes, **heads, num_hidden_layers=layers)
    return transformers.MixtralForCausalLM(config)
