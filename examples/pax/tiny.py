"""A tiny network and counted batches, trained by Pax as it is. In this folder that is

holdfast run -- PAX/bin/python -m paxml.main --exp=tiny.Tiny … (docs/how-to/frameworks.md)
"""

import numpy as np
from paxml import base_experiment, experiment_registry, learners, tasks_lib
from praxis import base_input, base_model, layers, optimizers, py_utils, schedules
from praxis.pax_fiddle import Config

STEPS, SAVE_EVERY = 2000, 100
ROWS, COLUMNS = 8, 16


class Counted(base_input.BaseInput):
    """Batches by number; the next one's is in each checkpoint (`enable_input_checkpointing`)."""

    batch_size: int = ROWS
    is_training: bool = True
    number: int = 0

    def get_next(self):
        drawn = np.random.default_rng([self.number, self.infeed_host_index])
        self.number += 1
        return py_utils.NestedMap(rows=drawn.random((ROWS, COLUMNS), np.float32))

    def _get_state_internal(self) -> bytes:
        return str(self.number).encode()

    def _set_state_internal(self, state: bytes) -> None:
        self.number = int(state)


class Network(base_model.BaseModel):
    """Learns to repeat its rows, of which dropout hides some."""

    def setup(self):
        sizes = {"input_dims": COLUMNS, "output_dims": COLUMNS}
        self.create_child("repeat", Config(layers.FeedForward, **sizes))
        self.create_child("hide", Config(layers.Dropout, keep_prob=0.9))

    def __call__(self, batch):
        loss = ((self.repeat(self.hide(batch.rows)) - batch.rows) ** 2).mean()
        return py_utils.NestedMap(loss=(loss, np.float32(1))), {}


@experiment_registry.register
class Tiny(base_experiment.BaseExperiment):
    def datasets(self):
        return [Config(Counted, name="counted")]

    def task(self):
        task = Config(tasks_lib.SingleTask, name="tiny", model=Config(Network, name="network"))
        rate = Config(schedules.Constant, value=1.0)
        adam = Config(optimizers.Adam, learning_rate=1e-2, lr_schedule=rate)
        task.train.learner = Config(learners.Learner, loss_name="loss", optimizer=adam)
        task.train.set(num_train_steps=STEPS, save_interval_steps=SAVE_EVERY)
        task.train.set(summary_interval_steps=10, eval_interval_steps=0)
        task.train.enable_input_checkpointing = True
        return task
