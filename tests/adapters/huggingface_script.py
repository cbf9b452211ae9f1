"""A short training by Hugging Face's Trainer for test_huggingface. Argument: what is special of it.

Epochs have 16 steps. Prints the step at its end, and a digest of the parameters.
"""

import hashlib
import os
import sys
import time

import torch
from transformers import (
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from holdfast.adapters.huggingface import HuggingFaceCallback

kind = sys.argv[1]
STEPS = 40
HOW = {
    "stops early": {"eval_strategy": "epoch"},
    "is told late": {"eval_strategy": "epoch"},
    "best": {"eval_strategy": "epoch", "save_strategy": "best"},
    "saves each epoch": {"save_strategy": "epoch"},
    "evaluates": {"eval_strategy": "epoch", "eval_on_start": True},
}


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, index):
        ids = (torch.arange(16) + 7 * index) % 97
        return {"input_ids": ids, "labels": ids}


class Timed(Trainer):
    evaluated_s = 0.0

    def evaluate(self, *given, **named):
        began_s = time.monotonic()
        try:
            return super().evaluate(*given, **named)
        finally:
            Timed.evaluated_s += time.monotonic() - began_s

    def _save_checkpoint(self, *given, **named):
        print(f"saves step {self.state.global_step}")
        super()._save_checkpoint(*given, **named)


class Fails(TrainerCallback):
    """After the training, as an upload of the model might."""

    def on_train_end(self, *_, **__):
        os._exit(3)


arguments = TrainingArguments(
    output_dir="checkpoints",
    max_steps=STEPS,
    per_device_train_batch_size=8,
    metric_for_best_model="loss",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    **{"save_strategy": "no", **HOW.get(kind, {})},
)
holdfast = HuggingFaceCallback(arguments.output_dir)
torch.manual_seed(arguments.seed)
layers = 3 if kind == "has more layers" else 2
config = GPT2Config(vocab_size=97, n_positions=16, n_embd=32, n_layer=layers, n_head=2)
model = GPT2LMHeadModel(config)
callbacks = [holdfast]
if kind in ("stops early", "is told late"):
    early = EarlyStoppingCallback(1, 1e9)  # no epoch is that much better than the first
    callbacks = [early, holdfast] if kind == "stops early" else [holdfast, early]
if kind == "fails at the end" and holdfast.run.attempt == 0:
    callbacks.append(Fails())
if kind == "is registered twice":
    callbacks.append(HuggingFaceCallback(arguments.output_dir))
data = Sentences()
trainer = Timed(model, arguments, train_dataset=data, eval_dataset=data, callbacks=callbacks)
checkpoint = "checkpoints/checkpoint-16" if kind == "goes on elsewhere" else holdfast.checkpoint
trainer.train(resume_from_checkpoint=checkpoint)
print(f"evaluated {Timed.evaluated_s} s")

digest = hashlib.sha256()
for _, tensor in sorted(model.state_dict().items()):
    digest.update(tensor.numpy().tobytes())
print(f"step {trainer.state.global_step}, parameters {digest.hexdigest()[:16]}")
