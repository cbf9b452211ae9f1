"""FLOPs of transformers, from a few numbers: 6N + 12·L·H·Q·T a token.

A. Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", 2022 (arXiv:2204.02311),
appendix B: of each weight a forward pass takes two FLOPs a token and a backward pass four; of
attention the products of queries with keys and of scores with values, forward and backward.
"""

from __future__ import annotations

from typing import Any

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


def flex_attention(block_mask: Any, *, heads: int, head_size: int, batch: int = 1) -> int:
    """Model FLOPs of torch's flex attention, forward and backward, by the blocks of its mask.

    Flex attention refuses the tensors without data that `of_torch` counts on. `heads`: those of the
    queries. A block that the mask leaves out does not count; of a block that it cuts, all does, as
    the kernel computes it. A mask of one head or one sequence counts for all.
    """
    of_batch, of_heads = map(int, block_mask.shape[:-2])
    queries, keys = map(int, block_mask.BLOCK_SIZE)
    if heads < 1 or batch < 1 or head_size < 1 or heads % of_heads or batch % of_batch:
        raise ConfigurationError(
            f"a block mask of {of_batch} sequences and {of_heads} heads, with batch={batch}, "
            f"heads={heads} and head_size={head_size}: give those of the queries"
        )
    counts = block_mask.kv_num_blocks, block_mask.full_kv_num_blocks
    blocks = sum(int(one.sum()) for one in counts if one is not None)
    share = batch // of_batch * (heads // of_heads)
    return 3 * 2 * 2 * head_size * blocks * queries * keys * share
