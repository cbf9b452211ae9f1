"""A tiny model and counted tokens, trained by MaxText as it is; on the command line that is

holdfast run -- python -m holdfast.adapters.maxtext CONFIG KEY=VALUE…
"""

import hashlib
import os
import sys
from pathlib import Path

os.environ.setdefault("DECOUPLE_GCLOUD", "TRUE")  # nothing of a cloud's is asked for
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import maxtext
import numpy as np
import orbax.checkpoint as ocp
from array_record.python.array_record_module import ArrayRecordWriter
from jax.experimental.multihost_utils import process_allgather
from tensorflow.train import Example, Feature, Features, Int64List

from holdfast.adapters.maxtext import main

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
TOKENIZER = Path(maxtext.__file__).parent / "assets/tokenizers/tokenizer.llama2"  # for its pad
VOCABULARY, LENGTH, DATA = 97, 32, Path("data.array_record")

if (ranks := int(os.environ.get("JAX_NUM_PROCESSES", "1"))) > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(num_processes=ranks, process_id=int(os.environ["JAX_PROCESS_ID"]))
if not DATA.exists():
    new = DATA.with_suffix(f".{os.getpid()}")  # each rank writes one, the last one stays
    writer = ArrayRecordWriter(str(new), "group_size:1")
    for first in range(2 * ranks * STEPS + 100):
        tokens = Int64List(value=[(first * 7 + place) % VOCABULARY for place in range(LENGTH)])
        features = Features(feature={"text": Feature(int64_list=tokens)})
        writer.write(Example(features=features).SerializeToString())
    writer.close()
    new.rename(DATA)

sizes = {"base_emb_dim": 32, "base_mlp_dim": 64, "head_dim": 16, "base_num_decoder_layers": 2}
sizes |= {"base_num_query_heads": 2, "base_num_kv_heads": 2, "max_target_length": LENGTH}
data = {"dataset_type": "grain", "grain_train_files": DATA, "tokenize_train_data": False}
data |= {"tokenizer_path": TOKENIZER, "grain_worker_count": 0, "vocab_size": VOCABULARY}
machine = {"hardware": "cpu", "skip_jax_distributed_system": True, "attention": "dot_product"}
run = {"run_name": "tiny", "base_output_directory": Path.cwd(), "steps": STEPS}
config = sizes | data | machine | run | {"per_device_batch_size": 2, "learning_rate": 1e-3}

try:
    main(["train", *(f"{name}={value}" for name, value in config.items())])
except SystemExit as end:
    if end.code:  # 75: stopped, and saved
        raise

items = Path.cwd() / "tiny" / "checkpoints" / str(STEPS - 1) / "items"
leaves = jax.tree.leaves(ocp.PyTreeCheckpointer().restore(items)["params"])
leaves = (np.asarray(process_allgather(leaf, tiled=True)) for leaf in leaves)
digest = hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves))
print(f"step {STEPS}, parameters {digest.hexdigest()[:16]}")
