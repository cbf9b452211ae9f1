"""A training by Hugging Face's Trainer without Holdfast, broken off and gone on with, or whole.

Arguments: "are made of random numbers" where the collator masks at random; "to the end", "to the
middle" (step 20 of 40 is saved, and the last), "from there". Prints as huggingface_script.
"""

import hashlib
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

BATCHES, WHERE = sys.argv[1:3]


def collated(examples):
    ids = torch.stack(examples)
    labels = ids.clone()
    if BATCHES == "are made of random numbers":
        ids[torch.rand(ids.shape) < 0.15] = 96
    return {"input_ids": ids, "labels": labels}


class Breaks(TrainerCallback):
    def on_step_end(self, _args, state, control, **_):
        if WHERE == "to the middle" and state.global_step == 20:
            control.should_save = control.should_training_stop = True


arguments = TrainingArguments(
    output_dir="alone",
    max_steps=40,
    per_device_train_batch_size=8,
    save_strategy="no",
    remove_unused_columns=False,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
torch.manual_seed(arguments.seed)
config = GPT2Config(vocab_size=97, n_positions=16, n_embd=32, n_layer=2, n_head=2)
model = GPT2LMHeadModel(config)
data = [(torch.arange(16) + 7 * index) % 97 for index in range(128)]
trainer = Trainer(
    model, arguments, train_dataset=data, data_collator=collated, callbacks=[Breaks()]
)
trainer.train(resume_from_checkpoint="alone/checkpoint-20" if WHERE == "from there" else None)

digest = hashlib.sha256()
for _, tensor in sorted(model.state_dict().items()):
    digest.update(tensor.numpy().tobytes())
print(f"step {trainer.state.global_step}, parameters {digest.hexdigest()[:16]}")
