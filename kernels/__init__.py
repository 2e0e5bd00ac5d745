"""Triton device code and its launchers: the Kimi-K3 MoE front.

| file | one idea |
|---|---|
| checks.py | what a launcher demands of its arguments |
| topk.py | logits to the K experts of a token |
| mx.py | MXFP8 / MXFP4 rows, their e8m0 scales and where AITER wants each scale byte |
| moe_sort.py | (ids, weights) to AITER's sorted layout, for any router |
| route_sort.py | small M: route, sort, quantise and zero in one launch |
| route_sort_mid.py | M up to 512: the same in two |
| token_sort.py | the second of them for M up to 256: a program per token |

Start reading at `route_sort.py`. Imports point downwards: route_sort_mid.py -> route_sort.py, token_sort.py ->
moe_sort.py, topk.py, mx.py -> checks.py; nothing here imports vLLM, AITER or the host side of this package.
"""
