"""What `k3moe bench layer-glue` launches and says; its times are a GPU's."""

import pytest

from vllm_k3moe.bench.layer_glue import TIMED, Layer, crossover
from vllm_k3moe.kernels.situ import MAX_TOKENS


@pytest.mark.on("gfx950", "gpu")
@pytest.mark.parametrize("m", [1, 2])
def test_what_is_timed_is_right_and_runs(m, device):
    layer = Layer(m, 0, device, None)
    layer.check()
    for column in TIMED:
        if column != "aside":  # wants a stream
            layer.what(column)()


@pytest.mark.on("gfx950", "gpu")
def test_a_wrong_result_is_named(device):
    layer = Layer(2, 0, device, None)
    layer.gate_up[1, 5] = float("nan")
    with pytest.raises(RuntimeError, match="M=2, shared expert: relative L2 nan; allowed: below"):
        layer.check()


@pytest.mark.host
def test_the_crossover_is_of_medians():
    def row(m: int, together: float, tail: float) -> dict[str, str]:
        return {"M": str(m), "A+B": str(together), "in turn": "3.0", "tail": str(tail), "stock tail": "6.0"}

    rows = [row(1, 2.0, 5.0), row(1, 9.0, 7.0), row(1, 2.5, 5.5), row(MAX_TOKENS, 4.0, 7.0)]
    assert crossover(rows) == [
        "M=1: A+B 2.50 us, in turn 3.00 us; faster: A+B, served: A+B",
        "M=1: tail 5.50 us, stock tail 6.00 us; faster: tail, served: tail",
        "M=128: A+B 4.00 us, in turn 3.00 us; faster: in turn, served: A+B",
        "M=128: tail 7.00 us, stock tail 6.00 us; faster: stock tail, served: stock tail",
    ]
