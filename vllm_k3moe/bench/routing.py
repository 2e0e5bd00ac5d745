"""Kinds of routing to time: logits fp32 [M, E] on the CPU, by a seed."""

from collections.abc import Callable

import torch

SPREAD = 1.2  # standard deviation of a logit


def uniform(m: int, e: int, rng: torch.Generator) -> torch.Tensor:
    """Every expert as likely as any other."""
    return torch.randn(m, e, generator=rng) * SPREAD


def skewed(m: int, e: int, rng: torch.Generator) -> torch.Tensor:
    """A few experts are liked by all tokens."""
    return uniform(m, e, rng) + torch.randn(e, generator=rng).exp() * 0.5


def verify(m: int, e: int, rng: torch.Generator) -> torch.Tensor:
    """Speculative decoding: four tokens of a request route alike, about 139 distinct experts at M=16."""
    shared = torch.randn(-(-m // 4), e, generator=rng).repeat_interleave(4, 0)[:m]
    alike = 0.42  # of a token's logits' variance, its request's
    return (shared * alike**0.5 + torch.randn(m, e, generator=rng) * (1 - alike) ** 0.5) * SPREAD


def same(m: int, e: int, rng: torch.Generator) -> torch.Tensor:
    """All tokens on the same experts."""
    return uniform(1, e, rng).repeat(m, 1)


def distinct(m: int, e: int, rng: torch.Generator) -> torch.Tensor:
    """No two tokens on the same expert, for as long as there are enough of 16 each."""
    logits = uniform(m, e, rng) - 20
    order = torch.randperm(e, generator=rng)
    for token in range(m):
        own = order[(torch.arange(16) + 16 * token) % e]
        logits[token, own] += 20
    return logits


KINDS: dict[str, Callable[[int, int, torch.Generator], torch.Tensor]] = {
    kind.__name__: kind for kind in (uniform, skewed, verify, same, distinct)
}
