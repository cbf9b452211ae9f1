"""TensorFlow's iterator of an epoch, in a file beside Keras's, with what is in its buffers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.session.say import say

ITERATOR = "iterator"


class SavedIterator:
    """The one that `fit` draws from. Where TensorFlow cannot save it, that is said, once."""

    def __init__(self, backend: str) -> None:
        """`backend`: of Keras. With the others, batches are drawn again."""
        self.is_saved = backend == "tensorflow"
        self._iterator: Any = None

    def replace(self, iterator: Any) -> bool:
        """Whether this is another one than before: an epoch has begun."""
        is_other = iterator is not self._iterator
        self._iterator = iterator
        return is_other

    def read(self, checkpoint: Path) -> None:
        """Put it where it was; where the checkpoint has none, batches are drawn again."""
        kept = checkpoint / ITERATOR
        self.is_saved = kept.with_suffix(".index").exists() and self._try(
            lambda saved: saved.read(str(kept)), "gone on with"
        )

    def write(self, checkpoint: Path) -> None:
        """Where it stands, if it can be saved and there is one yet. Raises OSError."""
        if self.is_saved and self._iterator is not None:
            kept = str(checkpoint / ITERATOR)
            self.is_saved = self._try(lambda saved: saved.write(kept), "saved")

    def _try(self, work: Callable[[Any], Any], what: str) -> bool:
        import tensorflow

        try:
            work(tensorflow.train.Checkpoint(iterator=self._iterator))
        except (tensorflow.errors.OpError, ValueError, TypeError, NotImplementedError) as error:
            reason = str(error).splitlines()[0][:200]
            say(
                f"the iterator of tf.data cannot be {what} ({reason}): after a restart, the "
                "batches of a broken-off epoch are drawn again"
            )
            return False
        return True
