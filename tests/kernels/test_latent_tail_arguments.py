"""What the latent tail refuses, before anything is launched."""

from typing import Any

import pytest
import torch

from vllm_k3moe.kernels.latent_tail import latent_tail

BF16 = torch.bfloat16


def arguments(device: torch.device) -> dict[str, Any]:
    return {
        "y": torch.zeros(2, 512, dtype=BF16, device=device),
        "norm_weight": torch.zeros(512, dtype=BF16, device=device),
        "eps": 1e-5,
        "up": torch.zeros(16, 512, dtype=BF16, device=device),
        "out": torch.zeros(2, 16, dtype=BF16, device=device),
    }


@pytest.mark.on("interpreter", "gpu")
@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"y": torch.zeros(2, 512)}, TypeError, "y has dtype float32; accepted: bfloat16"),
        ({"y": torch.zeros(2, 500, dtype=BF16)}, ValueError, "y has shape [2, 500]; accepted: [any, 512]"),
        ({"y": torch.zeros(129, 512, dtype=BF16)}, ValueError, "M=129 tokens; accepted: 0 to 128"),
        ({"y": None}, TypeError, "y is a NoneType"),
        ({"norm_weight": torch.zeros(512)}, TypeError, "norm_weight has dtype float32"),
        ({"norm_weight": torch.zeros(511, dtype=BF16)}, ValueError, "norm_weight has shape [511]; accepted: [512]"),
        ({"up": torch.zeros(16, 512)}, TypeError, "up has dtype float32"),
        ({"up": torch.zeros(16, 500, dtype=BF16)}, ValueError, "L=500 columns of up; accepted: a multiple of 512"),
        ({"up": torch.zeros(16, 0, dtype=BF16)}, ValueError, "L=0 columns of up"),
        ({"up": torch.zeros(12, 512, dtype=BF16)}, ValueError, "12 rows of up; accepted: a multiple of 16"),
        ({"up": torch.zeros(0, 512, dtype=BF16)}, ValueError, "0 rows of up"),
        ({"out": torch.zeros(2, 16)}, TypeError, "out has dtype float32"),
        ({"out": torch.zeros(3, 16, dtype=BF16)}, ValueError, "out has shape [3, 16]; accepted: [2, 16]"),
        ({"out": torch.zeros(2, 32, dtype=BF16)}, ValueError, "out has shape [2, 32]; accepted: [2, 16]"),
        ({"out": torch.zeros(2, 16, dtype=BF16, device="meta")}, ValueError, "out is on meta"),
        ({"eps": -1.0}, ValueError, "eps=-1.0; accepted: finite and not below 0"),
        ({"eps": float("nan")}, ValueError, "eps=nan"),
        ({"eps": "1e-5"}, TypeError, "eps='1e-5' is a str; accepted: float"),
    ],
)
def test_bad_arguments(change, error, message, device):
    moved = {
        k: v.to(device) if isinstance(v, torch.Tensor) and v.device.type == "cpu" else v for k, v in change.items()
    }
    with pytest.raises(error) as raised:
        latent_tail(**{**arguments(device), **moved})
    assert message in str(raised.value)


@pytest.mark.on("interpreter", "gpu")
@pytest.mark.parametrize(
    "name, shape, first, message",
    [
        ("y", (2, 520), 4, "y starts 8 bytes past"),
        ("y", (2, 516), 0, "y starts 0 bytes past a multiple of 16 with row stride 516"),
        ("up", (16, 1024), 0, "up has strides (1024, 1); accepted: contiguous"),
        ("out", (2, 24), 4, "out starts 8 bytes past"),
        ("out", (2, 20), 0, "out starts 0 bytes past a multiple of 16 with row stride 20"),
    ],
)
def test_slices_that_are_not_served(name, shape, first, message, device):
    given = arguments(device)
    columns = 16 if name == "out" else 512
    given[name] = torch.zeros(*shape, dtype=BF16, device=device)[:, first : first + columns]
    with pytest.raises(ValueError) as raised:
        latent_tail(**given)
    assert message in str(raised.value)


@pytest.mark.on("interpreter", "gpu")
def test_rows_of_out_may_not_overlap(device):
    out = torch.zeros(16, dtype=BF16, device=device).expand(2, 16)
    with pytest.raises(ValueError, match="out has row stride 0; accepted: 16 or more"):
        latent_tail(**{**arguments(device), "out": out})


@pytest.mark.on("interpreter", "gpu")
def test_rows_too_far_apart(device):
    """Offsets are 32 bits wide."""
    far = torch.empty(2**30 + 512, dtype=BF16, device=device).as_strided((2, 512), (2**30, 1))  # not touched
    with pytest.raises(ValueError, match="y lies in a storage of 2147484672 bytes; accepted: below 2"):
        latent_tail(**{**arguments(device), "y": far})


@pytest.mark.on("interpreter", "gpu")
def test_norm_weight_must_be_aligned(device):
    given = arguments(device)
    given["norm_weight"] = torch.zeros(516, dtype=BF16, device=device)[4:]
    with pytest.raises(ValueError, match="norm_weight starts 8 bytes past"):
        latent_tail(**given)


@pytest.mark.parametrize("name", ["y", "norm_weight", "up"])
def test_out_may_not_be_what_is_read(name, device):
    """Every program reads all of y and of the weights: one that has written would change what another reads."""
    given = arguments(device)
    given["out"] = given[name].flatten()[:32].view(2, 16)
    with pytest.raises(ValueError, match=f"out overlaps {name}"):
        latent_tail(**given)
