"""Triton device code and its launchers for a latent-MoE layer of Kimi-K3.

| file | one idea |
|---|---|
| checks.py | what a launcher demands of its arguments |
| bitonic.py | the largest keys of each chunk of a tensor, without a barrier |
| exponential.py | exp without an exp instruction |
| bf16.py | where Triton's interpreter has another bf16 than a GPU |
| topk.py | logits to the K experts of a token |
| mx.py | MXFP8 / MXFP4 rows, their e8m0 scales and where AITER wants each scale byte |
| moe_sort.py | (ids, weights) to AITER's sorted layout, for any router |
| front.py | the buffers of a front, and the work in it that does not depend on routing |
| route_sort.py | M = 1: route, sort, quantise and zero in one launch |
| route_sort_mid.py | M up to 512: the same in two |
| token_sort.py | the second of them: sorted rows, weights and scale bytes, a program per token or two |
| block_counts.py | how many blocks each expert takes, counted from the tokens' masks |
| operand.py | how a warp loads what it multiplies |
| situ.py | the shared expert's activation |
| shared_expert.py | its down GEMM, and both in turn |
| shared_token.py | of one token both in one launch |
| latent_tail.py | RMSNorm, up-projection and sum in one launch |

Start reading at `route_sort.py`. Imports point one way: route_sort.py, route_sort_mid.py -> token_sort.py, front.py ->
block_counts.py -> moe_sort.py, mx.py, topk.py -> bitonic.py, checks.py; shared_expert.py -> shared_token.py -> situ.py,
and they and latent_tail.py -> operand.py, bf16.py. Nothing here imports vLLM, AITER or the host side of this package.
"""
