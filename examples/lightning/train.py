"""A small network with dropout, trained by Lightning; Holdfast is five lines of it."""

import hashlib
import os
import sys

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything

from holdfast.adapters.lightning import LightningCallback, ResumableDataLoader

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
RANKS = int(os.environ.get("WORLD_SIZE", "1"))


class Network(LightningModule):
    """Learns the sum of its inputs, with dropout."""

    def __init__(self):
        super().__init__()
        parts = [torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Dropout(0.1)]
        self.layers = torch.nn.Sequential(*parts, torch.nn.Linear(256, 1))

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.layers(batch).squeeze(), batch.sum(1))
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


holdfast = LightningCallback("checkpoints")
seed_everything(0)
data = torch.randn(4096, 64, generator=torch.Generator().manual_seed(1))
loader = ResumableDataLoader(data, batch_size=32, shuffle=True)
model = Network()
trainer = Trainer(
    max_steps=STEPS,
    accelerator="cpu",
    devices=RANKS,
    strategy="ddp" if RANKS > 1 else "auto",
    callbacks=[holdfast],
    enable_checkpointing=False,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, loader, ckpt_path=holdfast.checkpoint)

digest = hashlib.sha256()
for _, tensor in sorted(model.state_dict().items()):
    digest.update(tensor.numpy().tobytes())
print(f"step {trainer.global_step}, parameters {digest.hexdigest()[:16]}")
