"""Where Triton has neither a GPU nor the interpreter, the arguments are refused by name."""

import os
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.host
CALL = """
import torch
from vllm_k3moe.kernels.topk import topk
topk(torch.zeros(1, 8), torch.zeros(8), 2)
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cpu_tensors_without_the_interpreter():
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True, check=False, env=environment)
    assert "ValueError: logits is on cpu and Triton finds no GPU; accepted: a GPU, or TRITON_INTERPRET=1" in done.stderr
