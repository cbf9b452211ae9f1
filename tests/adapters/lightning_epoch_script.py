"""A training by Lightning, broken off once where an epoch or an evaluation ends, or within one.

Arguments: what is special of the data, the step that is saved, the step of a SIGKILL; or the first
alone: Lightning without Holdfast. The file `killed` says that it was. Prints a digest, and, under
Holdfast, what was drawn and evaluated outside of a span that says so.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch import callbacks as theirs
from torch.utils.data import DataLoader, IterableDataset, RandomSampler

from holdfast.journal.layout import SPAN_SLOTS, Word

kind, killed = sys.argv[1], Path("killed")
save_at, kill_at = map(int, sys.argv[2:] or (0, 0))
BATCHES, BATCH, EPOCHS = 16, 8, 3
Loader, callbacks, checkpoint, holdfast = DataLoader, [], None, None
if save_at:
    from holdfast.adapters.lightning import LightningCallback, ResumableDataLoader

    holdfast = LightningCallback("checkpoints")
    Loader, callbacks, checkpoint = ResumableDataLoader, [holdfast], holdfast.checkpoint
resumed = holdfast.run.resume_step if holdfast else 0
outside = {"drawn": 0, "evaluated": 0}


def told(what, span):
    if holdfast:
        writer = holdfast.run._writer
        slots = (writer.page.load(Word.OPEN_SPANS + 2 * slot) for slot in range(SPAN_SLOTS))
        outside[what] += writer.span_kind(span) + 1 not in slots


class Rows:
    def __len__(self):
        return BATCHES * BATCH

    def __getitem__(self, row):
        if resumed and model.trainer.global_step == resumed:
            told("drawn", "restore")
        return data[row]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(data)


class Network(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2))

    def training_step(self, batch, _):
        step = self.trainer.global_step + 1
        if holdfast and not killed.exists():
            if step == save_at:
                holdfast.run.save(wait=True)
            if step == kill_at:
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.layers(batch).square().mean()

    def validation_step(self, batch, _):
        told("evaluated", "evaluate")
        self.log("val_loss", self.layers(batch).square().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, patience=0, factor=0.5, threshold=10.0, threshold_mode="abs"
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss", "interval": "epoch"},
        }


seed_everything(0)
data = torch.randn(BATCHES * BATCH, 8)
own = torch.Generator().manual_seed(5)
loader = {
    "shuffled": lambda: Loader(Rows(), BATCH, shuffle=True, generator=own),
    "limited": lambda: Loader(Rows(), BATCH, sampler=RandomSampler(data, generator=own)),
    "streamed": lambda: Loader(Stream(), BATCH),
}[kind]()
if hasattr(theirs, "EMAWeightAveraging"):  # from Lightning 2.6 on
    callbacks.append(theirs.EMAWeightAveraging())
model = Network()
trainer = Trainer(
    max_epochs=EPOCHS,
    limit_train_batches=6 if kind == "limited" else None,
    val_check_interval=3 if kind == "limited" else None,
    accelerator="cpu",
    devices=1,
    callbacks=callbacks,
    enable_checkpointing=False,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=1,
)
trainer.fit(model, loader, DataLoader(data, 64), ckpt_path=checkpoint)
digest = hashlib.sha256(b"".join(one.numpy().tobytes() for one in model.state_dict().values()))
rate = trainer.optimizers[0].param_groups[0]["lr"]
print(f"step {trainer.global_step}, rate {rate}, digest {digest.hexdigest()[:16]}")
if holdfast:
    print(f"outside: {outside}")
