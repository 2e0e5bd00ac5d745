"""The sizes of a latent-MoE layer on one rank, and Kimi-K3's: the only place where K3's numbers stand."""

from dataclasses import dataclass

SITU_BETA = 4.0  # gate
SITU_LINEAR_BETA = 25.0  # up
ROUTED_SCALING = 1.0
NORM_EPS = 1e-5  # as published; a served layer reads its own module's


@dataclass(frozen=True)
class MoEShape:
    """One rank's share of a latent-MoE layer."""

    hidden: int  # H, width of the residual stream
    latent: int  # L, width the routed experts work in (AITER's model_dim)
    experts: int  # E
    topk: int  # K
    inter: int  # I, expert intermediate size of this rank (AITER's inter_dim)
    shared_inter: int  # S, shared-expert intermediate size of this rank


# Kimi-K3 and K3.1 at tensor parallel 8: 3072 / 8 = 384 per expert, two shared experts of 384
K3_TP8 = MoEShape(hidden=7168, latent=3584, experts=896, topk=16, inter=384, shared_inter=768)
