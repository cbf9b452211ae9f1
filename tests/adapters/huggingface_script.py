"""A short training by Hugging Face's Trainer for test_huggingface. Argument: what is special of it.

Epochs have 16 steps. Prints the step at its end, and a digest of the parameters. SAVES names steps
that the first attempt saves, and KILL the one after which it is killed: once the save of step
COUNTS counts.
"""

import hashlib
import os
import signal
import sys
import time

import torch
from transformers import (
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    MixtralConfig,
    MixtralForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from holdfast.adapters.huggingface import HuggingFaceCallback
from holdfast.journal.layout import Word

kind = sys.argv[1]
STEPS = 40
SAVES = [int(step) for step in os.environ.get("SAVES", "").split()]
KILL, COUNTS = (int(os.environ.get(name, 0)) for name in ("KILL", "COUNTS"))
BEST = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
PLATEAU = {"patience": 0, "factor": 0.5, "threshold": 10.0, "threshold_mode": "abs"}
IN_ONE_CYCLE = ("in one cycle", "fails at the end")  # a schedule that raises at a step too many
HOW = {
    "stops early": {"eval_strategy": "epoch"},
    "stops early, then fails": {"eval_strategy": "epoch"},
    "is told late": {"eval_strategy": "epoch"},
    "best": {"eval_strategy": "epoch", "save_strategy": "best"},
    "saves each epoch": {"save_strategy": "epoch"},
    "keeps two of an epoch each": {"save_strategy": "epoch", "save_total_limit": 2},
    "keeps two of ten steps each": {
        "save_strategy": "steps",
        "save_steps": 10,
        "save_total_limit": 2,
    },
    "evaluates": {"eval_strategy": "epoch", "eval_on_start": True},
    "is slow": {"eval_strategy": "steps", "eval_steps": 30},
    "keeps one": {"save_total_limit": 1},
    "saves the model alone": {"save_only_model": True},
    "restores callbacks": {"restore_callback_states_from_checkpoint": True},
    "finds its batch": {"auto_find_batch_size": True},
    "returns the best": BEST,
    "slows down": {
        "eval_strategy": "epoch",
        "lr_scheduler_type": "reduce_lr_on_plateau",
        "lr_scheduler_kwargs": PLATEAU,
        "gradient_accumulation_steps": 3,
    },
}


LONG_S = 9  # longer than a step may take


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, index):
        ids = (torch.arange(16) + 7 * index) % 97
        return {"input_ids": ids, "labels": ids}


class Timed(Trainer):
    evaluated_s = saved_s = 0.0
    trained = 0  # batches
    depth = 0  # of several data sets each is evaluated within

    def evaluate(self, *given, **named):
        began_s = time.monotonic()
        Timed.depth += 1
        if kind == "is slow":
            time.sleep(LONG_S)
        try:
            return super().evaluate(*given, **named)
        finally:
            Timed.depth -= 1
            Timed.evaluated_s += 0 if Timed.depth else time.monotonic() - began_s

    def training_step(self, *given, **named):
        Timed.trained += 1
        if kind == "finds its batch" and self._train_batch_size > 4:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return super().training_step(*given, **named)

    def _save_checkpoint(self, *given, **named):
        print(f"saves step {self.state.global_step}")
        began_s = time.monotonic()
        if kind == "is slow":
            time.sleep(LONG_S)
        super()._save_checkpoint(*given, **named)
        Timed.saved_s += time.monotonic() - began_s


class Fails(TrainerCallback):
    """After the training, as an upload of the model might."""

    def on_train_end(self, *_, **__):
        os._exit(3)


class StopsEarly(TrainerCallback):
    """In the middle of an epoch."""

    def on_step_end(self, _args, state, control, **_):
        control.should_training_stop |= state.global_step == 20


class Strikes(TrainerCallback):
    def on_step_begin(self, _args, state, _control, **_):
        if state.global_step + 1 in SAVES:
            holdfast.run.save(tag=f"at-{state.global_step + 1}", wait=True)
        if KILL and state.global_step == KILL:
            while holdfast.run._boundary.writer.page.load(Word.COMMITTED) < COUNTS:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGKILL)


arguments = TrainingArguments(
    output_dir="checkpoints",
    max_steps=STEPS,
    per_device_train_batch_size=8,
    metric_for_best_model="some_loss" if kind == "evaluates" else "loss",
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
if kind == "has experts":
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": 4}
    model = MixtralForCausalLM(MixtralConfig(vocab_size=97, **sizes, **heads))
callbacks = [Strikes(), holdfast] if holdfast.run.attempt == 0 else [holdfast]
early = EarlyStoppingCallback(1, 1e9)  # no epoch is that much better than the first
if kind == "is told late":
    callbacks.append(early)
if kind.startswith("stops early"):
    callbacks.insert(0, early)
if kind.startswith("stops in an epoch"):
    callbacks.insert(0, StopsEarly())
if kind.endswith(("fails at the end", "then fails")) and holdfast.run.attempt == 0:
    callbacks.append(Fails())
if kind == "is registered twice":
    callbacks.append(HuggingFaceCallback(arguments.output_dir))
data = Sentences()
evaluated = {"some": data, "others": data} if kind == "evaluates" else data
optimizers = (None, None)
if kind in IN_ONE_CYCLE:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=STEPS)
    optimizers = (optimizer, schedule)
trainer = Timed(
    model,
    arguments,
    train_dataset=data,
    eval_dataset=evaluated,
    callbacks=callbacks,
    optimizers=optimizers,
)
checkpoint = "checkpoints/checkpoint-16" if kind == "goes on elsewhere" else holdfast.checkpoint
trainer.train(resume_from_checkpoint=checkpoint)
print(f"trained {Timed.trained} batches")
print(f"evaluated {Timed.evaluated_s} s")
print(f"saved {Timed.saved_s} s")
print(f"the best is {trainer.state.best_model_checkpoint}")

digest = hashlib.sha256()
for _, tensor in sorted(model.state_dict().items()):
    digest.update(tensor.numpy().tobytes())
print(f"step {trainer.state.global_step}, parameters {digest.hexdigest()[:16]}")
