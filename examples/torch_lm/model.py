"""A decoder-only transformer language model in PyTorch: the same as examples/lm, as modules.

Pre-norm blocks with RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467), rotary positions
(Su et al. 2021, arXiv:2104.09864), GELU, tied embeddings, no biases.

Shapes: B batch, T time, D width, H heads, K = D / H, L layers, V vocabulary (256 bytes).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Causal self-attention, [B, T, D] → [B, T, D]."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        B, T, D = x.shape  # noqa: N806
        qkv = self.qkv(x).view(B, T, 3 * self.heads, D // self.heads)
        q, k, v = qkv.transpose(1, 2).chunk(3, dim=1)  # each [B, H, T, K]
        y = functional.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(B, T, D))


def rotate(x):
    """Rotary positions on [B, H, T, K]: pair i turns by t / 10000^(2i/K) at time t."""
    T, half = x.shape[2], x.shape[3] // 2  # noqa: N806
    time, pair = (torch.arange(n, device=x.device) for n in (T, half))
    angle = time[:, None] / 10_000 ** (pair / half)  # [T, K/2]
    a, b = x.chunk(2, dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attention_norm = nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.RMSNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False),
            nn.GELU(),
            nn.Linear(4 * width, width, bias=False),
        )

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    """Logits [B, T, V] for tokens [B, T]; dropout on the embeddings while it trains."""

    def __init__(self, layers: int, width: int, heads: int, dropout: float = 0.1, vocab: int = 256):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.final_norm = nn.RMSNorm(width)
        for name, weights in self.named_parameters():
            if weights.ndim == 2:
                # What is added to the residual stream 2 L times starts smaller, as in GPT-2.
                outward = name.endswith(("attention.out.weight", "mlp.2.weight"))
                nn.init.normal_(weights, std=0.02 / (2 * layers) ** 0.5 if outward else 0.02)

    def forward(self, tokens):
        x = self.blocks(self.dropout(self.embedding(tokens)))
        return self.final_norm(x) @ self.embedding.weight.T


def loss(model, batch):
    """Mean cross-entropy, nats per byte, of batch [B, T + 1]: each byte predicts the next."""
    tokens = batch.long()
    return functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
