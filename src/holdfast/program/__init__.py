"""The FLOPs of a training step, and the peak of the chips that do it: program goodput's two halves.

`of_jax` counts any JAX function, `of_torch` a torch module and `of_torch_step` a whole step, all
without doing their work; `dense_transformer`, `moe_transformer` and `flex_attention` are closed
forms. `run.flops` takes what they give.
"""

from holdfast.program.closed_form import dense_transformer, flex_attention, moe_transformer
from holdfast.program.flops import Flops
from holdfast.program.jaxpr import of_jax, of_jaxpr
from holdfast.program.peaks import Peak, peak_of
from holdfast.program.torch import of_torch, of_torch_step

__all__ = [
    "Flops",
    "Peak",
    "dense_transformer",
    "flex_attention",
    "moe_transformer",
    "of_jax",
    "of_jaxpr",
    "of_torch",
    "of_torch_step",
    "peak_of",
]
