"""A small classifier in a loop of one's own, with Hugging Face's accelerate.

holdfast run --ranks 2 -- python examples/accelerate/train.py 200
"""

import hashlib
import sys

import torch
from accelerate import Accelerator

import holdfast as hf

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200

run = hf.start()
accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
torch.manual_seed(0)
inputs = torch.randn(400, 16)
rows = torch.utils.data.TensorDataset(inputs, inputs.sum(1).gt(0).long())
loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True)
model = torch.nn.Sequential(
    torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 2)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
model, optimizer, schedule, loader = accelerator.prepare(model, optimizer, schedule, loader)
torch.manual_seed(1 + run.rank)  # dropout is each rank's own

run.track(model=model, optimizer=optimizer, schedule=schedule)
data = run.data(loader, epochs=10_000)

for step in run.steps(STEPS):
    while True:  # a step is one of the optimizer's, over two batches
        batch, labels = next(data)
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(batch), labels)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            break
    run.done(step, metrics={"loss": loss.detach()})

digest = hashlib.sha256()
for _, tensor in sorted(accelerator.unwrap_model(model).state_dict().items()):
    digest.update(tensor.numpy().tobytes())
print(f"step {STEPS}, parameters {digest.hexdigest()[:16]}")
accelerator.end_training()
