"""A small language model, trained by Hugging Face's Trainer; Holdfast is four lines of it."""

import hashlib
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from holdfast.adapters.huggingface import HuggingFaceCallback

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200


class Sentences(torch.utils.data.Dataset):
    """Numbers that count up, from anywhere: 512 of them."""

    def __len__(self):
        return 512

    def __getitem__(self, index):
        ids = (torch.arange(32) + 7 * index) % 97
        return {"input_ids": ids, "labels": ids}


arguments = TrainingArguments(
    output_dir="checkpoints",
    max_steps=STEPS,
    per_device_train_batch_size=8,
    logging_steps=10,
    save_strategy="no",  # when is Holdfast's affair
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    include_num_input_tokens_seen=True,
)
holdfast = HuggingFaceCallback(arguments.output_dir)
torch.manual_seed(arguments.seed)
config = GPT2Config(vocab_size=97, n_positions=32, n_embd=64, n_layer=2, n_head=2)
model = GPT2LMHeadModel(config)
trainer = Trainer(model, arguments, train_dataset=Sentences(), callbacks=[holdfast])
trainer.train(resume_from_checkpoint=holdfast.checkpoint)

digest = hashlib.sha256()
for _, tensor in sorted(model.state_dict().items()):
    digest.update(tensor.numpy().tobytes())
print(f"step {trainer.state.global_step}, parameters {digest.hexdigest()[:16]}")
