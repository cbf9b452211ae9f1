"""A loop in TensorFlow 2 with its own checkpoints; Holdfast is three lines of it."""

import hashlib
import sys

import keras
import tensorflow as tf

from holdfast.adapters.tensorflow import TensorFlowLoop

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000

keras.utils.set_random_seed(0)
noise = tf.random.Generator.from_seed(1)
layers = [keras.layers.Dense(128, "relu"), keras.layers.Dropout(0.1), keras.layers.Dense(1)]
model = keras.Sequential([keras.Input((64,)), *layers])
optimizer = keras.optimizers.AdamW(1e-3)
optimizer.build(model.trainable_variables)
x = noise.normal((4096, 64))
rows = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, 1, keepdims=True)))
batches = iter(rows.shuffle(512, seed=2).repeat().batch(32))


@tf.function
def train_step(inputs, wanted):
    """Learns the sum of its inputs, which are blurred."""
    with tf.GradientTape() as tape:
        blurred = inputs + 0.01 * noise.normal(tf.shape(inputs))
        loss = tf.reduce_mean((model(blurred, training=True) - wanted) ** 2)
    slopes = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
    return loss


checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, noise=noise, batches=batches)
loop = TensorFlowLoop(checkpoint, "checkpoints", until=STEPS)
for _ in loop.steps():
    train_step(*next(batches))

digest = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights()))
print(f"step {STEPS}, parameters {digest.hexdigest()[:16]}")
