"""Ways to break each kernel, and the test that must notice.

A mutant is one replacement in one file, and the tests (a pytest -k expression on one file) that are run against it.
"""

# ruff: noqa: E501  one mutant is two lines, however long the line it breaks

from typing import NamedTuple


class Mutant(NamedTuple):
    what: str
    file: str
    old: str
    new: str
    tests: str
    select: str


TOPK, MX = "kernels/topk.py", "kernels/mx.py"
SORT, ONE, TWO = "kernels/moe_sort.py", "kernels/route_sort.py", "kernels/route_sort_mid.py"
TOKEN = "kernels/token_sort.py"

MUTANTS = (
    Mutant("ties go to the higher id", TOPK, "(COLUMNS - 1 - expert).to(tl.int64)", "expert.to(tl.int64)",
           "test_topk.py", "lowest_ids or all_equal"),
    Mutant("NaN ranks by its bits", TOPK, "tl.where(score != score, _LOWEST + 1, order)", "order",
           "test_topk.py", "special_rows and NaN"),
    Mutant("padding columns may win", TOPK, "tl.where(expert < NUM_EXPERTS, order, _LOWEST)", "order",
           "test_topk.py", "any_router"),
    Mutant("negative scores in reverse", TOPK, "bits ^ ((bits >> 31) & 0x7FFFFFFF)", "bits",
           "test_topk.py", "bias_alone"),
    Mutant("bitonic runs all upwards", TOPK, "descending ^ _upper(AXIS, DIMS)", "_upper(AXIS, DIMS) | (descending & 0)",
           "test_topk.py", "random_logits and 8"),
    Mutant("slots counted from the bottom", TOPK, "key[:, None, :] > key[:, :, None]", "key[:, None, :] < key[:, :, None]",
           "test_topk.py", "any_router"),
    Mutant("weights include the bias", TOPK, "s, _ = _load_scores", "_, s = _load_scores",
           "test_topk.py", "any_router"),
    Mutant("tiny sigmoids are not 0", TOPK, "tl.where(x < -87.33654, 0.0, s)", "s",
           "test_topk.py", "special_rows and normal"),
    Mutant("bf16 exp accuracy", TOPK, "p = tl.fma(p, r, 0.166665211)", "p = tl.fma(p, r, 0.1666)",
           "test_topk.py", "random_logits and 33"),
    Mutant("scale rounds down", MX, "> 0x600000).to(tl.int32)", "> 0x7FFFFF).to(tl.int32)",
           "test_mx.py", "known_mxfp8"),
    Mutant("scale rounds up at the maximum itself", MX, "> 0x400000).to(tl.int32)", ">= 0x400000).to(tl.int32)",
           "test_mx.py", "known_mxfp4"),
    Mutant("no floor under the scale", MX, "_FLOOR = tl.constexpr(0x2EDBE6FF)", "_FLOOR = tl.constexpr(0x0EDBE6FF)",
           "test_mx.py", "known_mxfp8"),
    Mutant("inf is an ordinary scale", MX, "tl.where(magnitude >= _INF, 255, byte)", "byte",
           "test_mx.py", "nan_and_inf"),
    Mutant("high nibble first", MX, "(low | (high << 4))", "(high | (low << 4))",
           "test_mx.py", "random_rows and mxfp4"),
    Mutant("denormal codes start too low", MX, "_minifloat(value, 3, -6)", "_minifloat(value, 3, -7)",
           "test_mx.py", "every_rounding and mxfp8"),
    Mutant("sign of zero lost", MX, "sign = (x.to(tl.int32, bitcast=True) >> 31) & 1", "sign = (x < 0).to(tl.int32)",
           "test_mx.py", "signed_zeros"),
    Mutant("tail columns dropped", MX, "live = group < WIDTH // _GROUP", "live = group < WIDTH // _GROUP // GROUPS * GROUPS",
           "test_mx.py", "any_width"),
    Mutant("scale address: halves of a tile swapped", MX, "(group % 8) // 4 * 2 + (row % 32) // 16", "(group % 8) // 4 + (row % 32) // 16 * 2",
           "test_front.py", "other_shapes"),
    Mutant("scale address: row stride unpadded", MX, "(row // 32) * (GROUPS_PADDED * 32)", "(row // 32) * ((GROUPS_PADDED - 1) * 32)",
           "test_front.py", "other_shapes"),
    Mutant("padding id is token 0", SORT, "(TOPK << 24) | num_tokens + row * 0", "(TOPK << 24) | row * 0",
           "test_moe_sort.py", "any_router"),
    Mutant("padding weight not written", SORT, "    tl.store(sorted_weights + row, 0.0, mask=mask)\n", "",
           "test_moe_sort.py", "nothing_else"),
    Mutant("ranks of a token tile start over", SORT, "        next_row += tl.sum(hit, axis=1)\n", "",
           "test_moe_sort.py", "uniform and 129"),
    Mutant("rank not stable", SORT, "next_row[:, None] + tl.cumsum(hit, axis=1) - 1", "next_row[:, None] + tl.sum(hit, axis=1)[:, None] - tl.cumsum(hit, axis=1)",
           "test_moe_sort.py", "skewed and same"),
    Mutant("block count rounds down", SORT, "tl.cdiv(count, BLOCK)", "(count // BLOCK)",
           "test_moe_sort.py", "any_router"),
    Mutant("counters overflow into each other", SORT, "& 0x00FF00FF, axis=0)\n    odd", "& 0x00FF00FF, axis=0) & 0x007F007F\n    odd",
           "test_moe_sort.py", "one_expert"),
    Mutant("slot forgotten", SORT, "tl.sum(tl.where(match, slot[:, None, :], 0), axis=0) << 24 | token", "token + hit * 0",
           "test_moe_sort.py", "any_router"),
    Mutant("one launch: rank not stable", ONE, "pair[None, :] < pair[:, None]", "pair[None, :] > pair[:, None]",
           "test_front.py", "skewed and one"),
    Mutant("one launch: padding rows begin one early", ONE, "nth >= count[:, None]", "nth >= count[:, None] - 1",
           "test_front.py", "skewed and one"),
    Mutant("one launch: zeroing misses the tail", ONE, "zero, mask=column < WIDTH)", "zero, mask=column < WIDTH // (GROUPS * _GROUP) * (GROUPS * _GROUP))",
           "test_front.py", "other_shapes and one"),
    Mutant("one launch: scales of token 0 for all", ONE, "x + token[:, None].to(tl.int64) * row_stride + column", "x + token[:, None].to(tl.int64) * 0 + column",
           "test_front.py", "other_shapes and one"),
    Mutant("one launch: scale tail columns dropped", ONE, "for first in range(0, WIDTH // _GROUP, GROUPS):", "for first in range(0, WIDTH // _GROUP - GROUPS + 1, GROUPS):",
           "test_front.py", "other_shapes and one"),
    Mutant("two launches: mask of losers too", TWO, "store_mask(masks, pid, ids, slots < TOPK, NUM_EXPERTS)", "store_mask(masks, pid, ids, slots < TOPK_PADDED, NUM_EXPERTS)",
           "test_front.py", "other_shapes and two"),
    Mutant("two launches: nothing zeroed", TWO, "rows, row_scales, zeroed, pid", "rows, row_scales, None, pid",
           "test_front.py", "other_shapes and two"),
    Mutant("two launches: scales of padding rows written", TWO, "mask = live[:, None] & (group < GROUPS)", "mask = (live[:, None] | True) & (group < GROUPS)",
           "test_front.py", "other_shapes and two"),
    Mutant("two launches: last scale group dropped", TWO, "mask = live[:, None] & (group < GROUPS)", "mask = live[:, None] & (group < GROUPS - 1)",
           "test_front.py", "other_shapes and two"),
    Mutant("two launches: quantised slices shifted", TWO, "pid - num_tokens, MODE", "pid - num_tokens + 1, MODE",
           "test_front.py", "other_shapes and two"),
    Mutant("by token: a pair does not count itself", TOKEN, "tl.where(other < token, 1025, 1)", "tl.where(other < token, 1025, 0)",
           "test_front.py", "skewed and token"),
    Mutant("by token: rank counts the token itself", TOKEN, "other < token, 1025", "other <= token, 1025",
           "test_front.py", "other_shapes and token"),
    Mutant("by token: an expert is below itself", TOKEN, "(tl.maximum(lower, 0) & 31)) - 1", "(tl.maximum(lower + 1, 0) & 31)) - 1",
           "test_front.py", "other_shapes and token"),
    Mutant("by token: full blocks not counted", TOKEN, "<< (i - 1)", "* 0",
           "test_front.py", "skewed and token"),
    Mutant("by token: carry between planes lost", TOKEN, "(a & b) | (c & (a | b))", "a & b",
           "test_front.py", "skewed and token"),
    Mutant("by token: every pair writes padding", TOKEN, "(rank == 0) & (padding >= count)", "(rank >= 0) & (padding > count)",
           "test_front.py", "skewed and token"),
    Mutant("by token: one expert id for all its blocks", TOKEN, "(nth <= last)", "(nth == 0)",
           "test_front.py", "skewed and token"),
    Mutant("by token: scales go to the block's first row", TOKEN, "scale_offset(row[", "scale_offset((row - rank)[",
           "test_front.py", "skewed and token"),
)  # fmt: skip
