"""The closed forms against what others have published."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigurationError
from holdfast.program import dense_transformer, moe_transformer, peak_of

GPT2 = {"layers": 12, "heads": 12, "head_size": 64, "sequence": 1024}


def test_palm_540b() -> None:
    """PaLM, appendix B: 238,300 tokens a second on 6,144 TPU v4 are 46.2 % (45.7 without it)."""
    palm = {"layers": 118, "heads": 48, "head_size": 256, "sequence": 2048}
    a_token = dense_transformer(parameters=540_000_000_000, **palm)
    peak = peak_of("TPU v4")
    assert peak is not None
    assert a_token * 238_300 / (6144 * peak.flops) == pytest.approx(0.462, abs=5e-4)
    assert 6 * 540e9 * 238_300 / (6144 * peak.flops) == pytest.approx(0.457, abs=5e-4)


def test_llama_3_8b_as_torchtitan_counts_it() -> None:
    """57.9 GFLOP a token, with a sequence of 8,192; its table of embeddings is left out."""
    width, hidden, heads, head_size, kv_heads, layers, words = 4096, 14336, 32, 128, 8, 32, 128_256
    attention = 2 * width * heads * head_size + 2 * width * kv_heads * head_size
    layer = attention + 3 * width * hidden + 2 * width
    parameters = layers * layer + width + words * width
    found = dense_transformer(
        parameters=parameters, layers=layers, heads=heads, head_size=head_size, sequence=8192
    )
    assert found / 1e9 == pytest.approx(57.9, abs=0.05)


def test_gpt_2_as_nanogpt_counts_it() -> None:
    """transformer_sizing.ipynb of nanoGPT: one sequence, forward and backward."""
    found = dense_transformer(parameters=124_337_664 - 786_432, tokens=1024, **GPT2)
    assert found == 875_062_886_400


def test_half_of_attention() -> None:
    whole, half = (dense_transformer(parameters=0, causal_half=half, **GPT2) for half in (0, 1))
    assert whole == 2 * half > 0


def test_only_the_experts_that_a_token_meets() -> None:
    one = {"shared_parameters": 10, "expert_parameters": 7, **GPT2}
    two_of_many = moe_transformer(active_experts=2, **one)
    assert two_of_many == dense_transformer(parameters=24, **GPT2)


def test_sizes_are_not_negative() -> None:
    with pytest.raises(ConfigurationError, match="parameters=-1"):
        dense_transformer(parameters=-1, **GPT2)
