"""FLOPs of transformers, from a few numbers: 6N + 12·L·H·Q·T a token.

A. Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", 2022 (arXiv:2204.02311),
appendix B: of each weight a forward pass takes two FLOPs a token and a backward pass four; of
attention the products of queries with keys and of scores with values, forward and backward.
"""

from __future__ import annotations

from holdfast.errors import ConfigurationError


def dense_transformer(
    *,
    parameters: int,
    layers: int,
    heads: int,
    head_size: int,
    sequence: int,
    tokens: int = 1,
    causal_half: bool = False,
) -> int:
    """Model FLOPs of a training step on `tokens` tokens; of 1, FLOPs a token.

    `parameters`: those that are multiplied: without the table of an embedding that only looks up
    (one that is also the output's matrix counts). `heads` × `head_size`: the width of the queries.
    `causal_half`: count only the half of attention below the diagonal, as a kernel computes that
    leaves the rest out. The usual count, and the default, is all of it.
    """
    sizes = {
        "parameters": parameters, "layers": layers, "heads": heads, "head_size": head_size,
        "sequence": sequence, "tokens": tokens,
    }  # fmt: skip
    for name, size in sizes.items():
        if size < 0:
            raise ConfigurationError(f"a transformer with {name}={size}: give 0 or more")
    attention = 12 * layers * heads * head_size * sequence
    return tokens * (6 * parameters + (attention // 2 if causal_half else attention))


def moe_transformer(
    *,
    shared_parameters: int,
    expert_parameters: int,
    active_experts: int,
    layers: int,
    heads: int,
    head_size: int,
    sequence: int,
    tokens: int = 1,
    causal_half: bool = False,
) -> int:
    """The same for a mixture of experts: of the experts only those count that a token goes to.

    `shared_parameters`: all that each token meets (attention, norms, routers, experts that all
    tokens share, the output's matrix). `expert_parameters`: of one expert, in all layers together.
    `active_experts`: to how many of a layer a token goes.
    """
    return dense_transformer(
        parameters=shared_parameters + active_experts * expert_parameters,
        layers=layers,
        heads=heads,
        head_size=head_size,
        sequence=sequence,
        tokens=tokens,
        causal_half=causal_half,
    )
