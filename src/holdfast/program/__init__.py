"""The FLOPs of a training step, and the peak of the chips that do it: program goodput's two halves.

`of_jax` counts any JAX function and `of_torch` a torch module, both without running them;
`dense_transformer` and `moe_transformer` are closed forms. `run.flops` takes what they give.
"""

from holdfast.program.closed_form import dense_transformer, moe_transformer
from holdfast.program.flops import Flops
from holdfast.program.jaxpr import of_jax, of_jaxpr
from holdfast.program.peaks import Peak, peak_of
from holdfast.program.torch import of_torch

__all__ = [
    "Flops",
    "Peak",
    "dense_transformer",
    "moe_transformer",
    "of_jax",
    "of_jaxpr",
    "of_torch",
    "peak_of",
]
