"""A short training in Keras for test_keras. Arguments: what the data are, the step of a SIGKILL.

It is killed once: the file `killed` says that it was. Prints each epoch's metrics, and a digest;
and what was passed over or evaluated outside of a span that says so.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np

from holdfast.adapters.keras import KerasCallback
from holdfast.journal.layout import SPAN_SLOTS, Word

kind, kill_at, killed = sys.argv[1], int(sys.argv[2]), Path("killed")
BATCHES, BATCH, EPOCHS = 20, 8, 4
AT_ONCE = 3 if kind == "several at once" else 1

callback = KerasCallback("checkpoints")
keras.utils.set_random_seed(1)
x = np.random.default_rng(2).standard_normal((BATCHES * BATCH, 16), np.float32)
y = x.sum(1)


def batches():
    order = np.random.default_rng(3)
    while True:
        rows = order.integers(0, len(x), BATCH)
        yield x[rows], y[rows]


class InOrder(keras.utils.PyDataset):
    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return x[rows], y[rows]


def look_for(span):
    writer = callback.run._writer
    slots = (writer.page.load(Word.OPEN_SPANS + 2 * slot) for slot in range(SPAN_SLOTS))
    if writer.span_kind(span) + 1 not in slots:
        print(f"outside: {span}")


class Watch(keras.callbacks.Callback):
    """Ends this process in the middle of an epoch, and prints what the epochs came to."""

    steps, last = callback.run.resume_step, 0
    to_pass = (steps - 1) % -(-BATCHES // AT_ONCE) + 1 if steps else 0

    def on_train_batch_begin(self, batch, logs=None):
        if self.to_pass:
            self.to_pass -= 1
            look_for("restore")

    def on_test_batch_end(self, batch, logs=None):
        look_for("evaluate")

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        Watch.last = self.steps
        if kind.startswith("stops early") and self.steps == 25:
            self.model.stop_training = True
        if self.steps == kill_at - 2:
            callback.run.save(wait=True)
        if self.steps == kill_at and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def on_epoch_end(self, epoch, logs=None):
        numbers = " ".join(f"{name} {float(value)!r}" for name, value in sorted(logs.items()))
        print(f"epoch {epoch}: {numbers}")


def how():
    if kind == "tf.data":
        import tensorflow as tf

        rows = tf.data.Dataset.from_tensor_slices((x, y))
        return {"x": rows.shuffle(64, seed=4).batch(BATCH).prefetch(2)}
    if kind == "generator":
        return {"x": callback.data(batches()), "steps_per_epoch": BATCHES}
    if kind == "PyDataset":
        return {"x": InOrder()}
    return {"x": x, "y": y, "batch_size": BATCH, "validation_data": (x, y)}


layers = [keras.layers.Dense(32, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
model = keras.Sequential([keras.Input((16,)), *layers])
model.compile("adam", "mse", metrics=["mae"], steps_per_execution=AT_ONCE)
slower = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
model.fit(**how(), epochs=EPOCHS, callbacks=[Watch(), callback, slower], verbose=0)
if kind.endswith("then fails") and callback.run.attempt == 0:
    os._exit(3)
print(f"trained up to step {Watch.last}")
weights = b"".join(np.asarray(one).tobytes() for one in model.get_weights())
print("final", hashlib.sha256(weights).hexdigest()[:16])
