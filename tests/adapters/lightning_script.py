"""A short training by Lightning for test_lightning. Argument: what is special of it."""

import os
import sys
import time

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.loops.evaluation_loop import _EvaluationLoop

from holdfast.adapters.lightning import LightningCallback, ResumableDataLoader

kind = sys.argv[1]
validate, evaluated_s, trained = _EvaluationLoop.run, 0.0, 0


def timed(loop):
    global evaluated_s
    began_s = time.monotonic()
    try:
        return validate(loop)
    finally:
        evaluated_s += time.monotonic() - began_s


_EvaluationLoop.run = timed


class Network(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 3 if kind == "has more outputs" else 2)

    def training_step(self, batch, _):
        global trained
        trained += 1
        return self.layer(batch).square().mean()

    def validation_step(self, batch, _):
        time.sleep(0.02)
        self.log("val_loss", self.layer(batch).square().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class StopsEarly(Callback):
    """In the middle of an epoch."""

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop |= trainer.global_step == 20


holdfast = LightningCallback("checkpoints")
seed_everything(0)
data = torch.randn(256, 8)
callbacks = [StopsEarly(), holdfast] if kind.startswith("stops early") else [holdfast]
if kind == "is registered twice":
    callbacks.append(LightningCallback("checkpoints"))
trainer = Trainer(
    max_steps=80,
    accelerator="cpu",
    devices=1,
    callbacks=callbacks,
    enable_checkpointing=False,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
loaders = [ResumableDataLoader(data, batch_size=8), ResumableDataLoader(data, batch_size=32)]
checkpoint = sys.argv[2] if kind == "goes on elsewhere" else holdfast.checkpoint
network = Network()
trainer.fit(network, *loaders, ckpt_path=checkpoint)
if kind.endswith("then fails") and holdfast.run.attempt == 0:
    os._exit(3)
print(f"trained {trained} batches; step {trainer.global_step}, {network.layer.weight.tolist()}")
print(f"evaluated {evaluated_s} s")
