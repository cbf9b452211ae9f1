"""A small language model under PyTorch's FSDP2: each rank holds a part of each parameter.

holdfast run --ranks 2 -- python examples/fsdp/train.py 200
"""

import hashlib
import sys

import torch
from torch.distributed.fsdp import fully_shard

import holdfast as hf

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
VOCABULARY, WIDTH = 97, 64

run = hf.start()
torch.distributed.init_process_group("gloo")  # "nccl" on GPUs
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Embedding(VOCABULARY, WIDTH),
    torch.nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=256, batch_first=True),
    torch.nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=256, batch_first=True),
    torch.nn.Linear(WIDTH, VOCABULARY),
    torch.nn.LogSoftmax(dim=-1),
)
for layer in model[1:3]:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
torch.manual_seed(1 + run.rank)  # dropout is each rank's own


def batches():  # numbers that count up, from anywhere; each rank has rows of its own
    draw = torch.Generator().manual_seed(run.rank)
    while True:
        start = torch.randint(VOCABULARY, (8, 1), generator=draw)
        yield (start + torch.arange(33)) % VOCABULARY


run.track(model=model, optimizer=optimizer, schedule=schedule)
data = run.data(batches(), reshard="same")  # with other ranks, as many batches each

for step in run.steps(STEPS):
    tokens = next(data)
    chances = model(tokens[:, :-1])
    loss = torch.nn.functional.nll_loss(chances.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    run.done(step, tokens=tokens.numel(), metrics={"loss": loss.detach()})

digest = hashlib.sha256()
for _, tensor in sorted(model.state_dict().items()):
    digest.update(tensor.full_tensor().numpy().tobytes())
print(f"step {STEPS}, parameters {digest.hexdigest()[:16]}")
torch.distributed.destroy_process_group()
