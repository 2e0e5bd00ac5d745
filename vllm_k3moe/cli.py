"""The command `k3moe`. Each subcommand imports its module when it runs, so `--help` loads neither torch nor triton."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from . import __version__
from . import device as devices

MODES = ("none", "mxfp8", "mxfp4")
SITU_MODES = ("a16w4", "a8w4", "a4w4")  # vLLM's names of the same


def token_counts(text: str) -> list[int]:
    """`1,2,4,8` to [1, 2, 4, 8]; each from 1 to 512."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a comma-separated list of integers") from None
    for count in counts:
        if not 1 <= count <= 512:
            raise argparse.ArgumentTypeError(f"M = {count}; accepted: 1 to 512")
    return counts


def seed(text: str) -> int:
    """An integer from 0 to 2^31 - 1: torch's generators take no more once experts are counted on top."""
    if not text.isdecimal() or int(text) >= 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: an integer from 0 to {(1 << 31) - 1}")
    return int(text)


def demo(args: argparse.Namespace) -> int:
    from vllm_k3moe.demo import run_demo

    return run_demo(args.m, args.mode, args.device, args.seed, args.json)


def numbers(accepted: str, low: int, high: int, text: str) -> tuple[int, ...]:
    """A comma-separated list of integers from low to high."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a comma-separated list of integers") from None
    for number in found:
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{number}; accepted: {accepted}")
    return found


def need_gpu() -> bool:
    """Whether torch sees a GPU; says so where it does not."""
    import torch

    if not torch.cuda.is_available():
        print("k3moe: torch sees no GPU here; a benchmark times one", file=sys.stderr)
    return torch.cuda.is_available()


def bench_front(args: argparse.Namespace) -> int:
    from rich.console import Console

    if not need_gpu():
        return 2
    from vllm_k3moe.bench import front, results

    found = front.rows(args.m or front.TOKENS, tuple(args.mode), args.block, tuple(args.routing), args.runs, args.all)
    with Console(stderr=True).status("") as status:
        results.write(args.out, "us per front", front.COLUMNS, found, status.update)
    return 0


def bench_layer_glue(args: argparse.Namespace) -> int:
    from rich.console import Console

    if not need_gpu():
        return 2
    from vllm_k3moe.bench import layer_glue, results

    with Console(stderr=True).status("") as status:
        found = layer_glue.rows(args.m or layer_glue.TOKENS, args.runs)
        results.write(args.out, "us per layer", layer_glue.COLUMNS, found, status.update)
    for line in layer_glue.crossover(results.read(args.out)[1]):
        print(line)
    return 0


def bench_launch_floor(args: argparse.Namespace) -> int:
    if not need_gpu():
        return 2
    from vllm_k3moe.bench import launch_floor

    return launch_floor.run()


def bench_plot(args: argparse.Namespace) -> int:
    from vllm_k3moe.bench import plot

    plot.draw(args.table, args.out, args.mode, str(args.block), args.routing)
    return 0


def bench_gfx950(args: argparse.Namespace) -> int:
    from vllm_k3moe.bench import gfx950

    return gfx950.run()


def doctor(args: argparse.Namespace) -> int:
    from vllm_k3moe import doctor

    return doctor.run(args.json)


def warmup(args: argparse.Namespace) -> int:
    from vllm_k3moe import precompile

    return precompile.run(args.mode, args.tp)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="k3moe", description="Fused, tuned MoE for Kimi-K3 in vLLM on MI355X (gfx950).")
    top.add_argument("--version", action="version", version=f"vllm-k3moe {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    p = commands.add_parser(
        "demo",
        help="run the MoE front at Kimi-K3's sizes and check it against the oracle",
        description="Run route, sort and quantise at Kimi-K3's sizes on random data and compare every product with an "
        "independent oracle. Exit status: 0 all equal, 1 a mismatch, 2 wrong usage.",
    )
    p.add_argument("--m", type=token_counts, metavar="M,M,...", help="tokens (default 1,2,4,8; on a GPU 1 to 512)")
    p.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES), help="quantisation (default: all three)")
    p.add_argument(
        "--device",
        choices=devices.DEVICES,
        default="auto",
        help="auto: a GPU if there is one, else gfx950 where it can be had, else interpreter; interpreter: Triton's; "
        "gfx950: MI355X machine code, emulated on the CPU; cuda: this machine's GPU",
    )
    p.add_argument("--seed", type=seed, default=0, help="of weights, logits and activations (default 0)")
    p.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    p.set_defaults(run=demo, needs=("numpy", "torch", "triton"))

    benches = commands.add_parser("bench", help="what the launches cost").add_subparsers(required=True, metavar="WHAT")
    p = benches.add_parser(
        "gfx950",
        help="instructions executed and modelled cycles of every served launch, from the committed tables",
        description="Print what each served launch executes on emulated gfx950, with a model's cycles. Not time.",
    )
    p.set_defaults(run=bench_gfx950, needs=("torch", "triton"))

    routings = ("uniform", "skewed", "verify", "same", "distinct")
    p = benches.add_parser("front", help="time route, sort and quantise on this GPU against chains of launches")
    p.add_argument("out", type=Path, metavar="CSV")
    p.add_argument("--m", type=partial(numbers, "1 to 512", 1, 512), metavar="M,M,...", help="default: 1 to 512")
    p.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES))
    p.add_argument("--block", type=partial(numbers, "16 to 128", 16, 128), default=(32,), metavar="B,B,...")
    p.add_argument("--routing", nargs="+", choices=routings, default=["uniform"])
    p.add_argument("--runs", type=int, default=2, help="times that all is measured (default 2)")
    p.add_argument("--ours-only", dest="all", action="store_false", help="leave the baselines out")
    p.set_defaults(run=bench_front, needs=("numpy", "torch", "triton"))

    p = benches.add_parser("layer-glue", help="time a layer's small launches on this GPU, fused and one by one")
    p.add_argument("out", type=Path, metavar="CSV")
    p.add_argument("--m", type=partial(numbers, "1 to 128", 1, 128), metavar="M,M,...", help="default: 1 to 128")
    p.add_argument("--runs", type=int, default=2, help="times that all is measured (default 2)")
    p.set_defaults(run=bench_layer_glue, needs=("numpy", "torch", "triton"))

    p = benches.add_parser("launch-floor", help="time chains of dependent empty launches on this GPU")
    p.set_defaults(run=bench_launch_floor, needs=("torch", "triton"))

    p = benches.add_parser("plot", help="draw the curves of a table that `bench front` or `layer-glue` wrote")
    p.add_argument("table", type=Path, metavar="CSV")
    p.add_argument("out", type=Path, metavar="PNG")
    p.add_argument("--mode", choices=MODES, default="mxfp8")
    p.add_argument("--block", type=int, default=32)
    p.add_argument("--routing", choices=routings, default="uniform")
    p.set_defaults(run=bench_plot, needs=("matplotlib",))

    p = commands.add_parser(
        "doctor",
        help="say whether the fused path would run here, and if not, why",
        description="Look at this Python, its GPU, AITER, the environment and the caches. Run it in the environment of "
        "the server. Exit status: 0 it would be active, 1 inactive, 2 something is broken or a setting is wrong.",
    )
    p.add_argument("--json", action="store_true", help="print one JSON document")
    p.set_defaults(run=doctor, needs=())

    p = commands.add_parser(
        "warmup",
        help="compile ahead of time what the first start would compile",
        description="Compile on this machine's MI355X, into K3MOE_CACHE, all that a layer's first call compiles. "
        "Exit status: 0 compiled, 2 nothing can be compiled here.",
    )
    p.add_argument("--mode", choices=SITU_MODES, help="of the experts (default: the one that vLLM would choose)")
    p.add_argument("--tp", type=int, choices=(8,), default=8, help="tensor parallel size (default 8)")
    p.set_defaults(run=warmup, needs=("torch", "triton"))
    return top


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    missing = [name for name in args.needs if find_spec(name) is None]
    if missing:
        print(
            f"k3moe: {' and '.join(missing)} not installed. A ROCm image brings its own builds; "
            "elsewhere: pip install 'vllm-k3moe[standalone]'",
            file=sys.stderr,
        )
        return 2
    status: int = args.run(args)
    return status


if __name__ == "__main__":
    sys.exit(main())
