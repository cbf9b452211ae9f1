"""A short training in PyTorch for `make versions`; see jax_script.py."""

import hashlib
import os
import signal
import sys
from pathlib import Path

import torch

import holdfast as hf

until, kill_at, killed = int(sys.argv[1]), int(sys.argv[2]), Path("killed")
torch.manual_seed(7)
torch.set_num_threads(1)
run = hf.start()
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
run.track(model=model, optimizer=optimizer)
run.restore()
print("resumed at", run.resume_step)
for step in run.steps(until):
    loss = model(torch.full((2, 8), step / 7)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == kill_at - 2:
        run.save(wait=True)
    if step == kill_at and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    run.done(step)

bits = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
print("final", hashlib.sha256(bits).hexdigest()[:16])
