"""A short training by Lightning for test_lightning. Argument: what is special of it."""

import sys
import time

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.loops.evaluation_loop import _EvaluationLoop

from holdfast.adapters.lightning import LightningCallback, ResumableDataLoader

kind = sys.argv[1]
validate, evaluated_s = _EvaluationLoop.run, 0.0


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
        return self.layer(batch).square().mean()

    def validation_step(self, batch, _):
        time.sleep(0.02)
        self.log("val_loss", self.layer(batch).square().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


holdfast = LightningCallback("checkpoints")
seed_everything(0)
data = torch.randn(256, 8)
callbacks = [holdfast]
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
trainer.fit(Network(), *loaders, ckpt_path=checkpoint)
print(f"evaluated {evaluated_s} s")
