"""`k3moe doctor` beside vLLM on the stand-in platform, each in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

from vllm_k3moe.gates import MODE_VARIABLES

pytestmark = pytest.mark.on("gfx950")
# as `k3moe doctor --json`, on a CPU that torch takes for an MI355X
CODE = """
import sys
import cpu_ops
cpu_ops.install()
{before}
from vllm_k3moe.cli import main
sys.exit(main(["doctor", "--json"]))
"""


@pytest.fixture
def doctor(environment, tmp_path):
    """(exit status, document) with these variables, after this code."""
    environment.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    environment.setenv("AITER_JIT_DIR", str(tmp_path / "jit"))
    for name in ("VLLM_PLUGINS", *MODE_VARIABLES, "AITER_SITUV2_A4W4", "AITER_SITUV2_A8W4"):
        environment.delenv(name, raising=False)

    def run(before: str = "", **variables: str):
        command = [sys.executable, "-c", CODE.format(before=before)]
        env = {**os.environ, **variables}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        doc = json.loads(done.stdout)
        assert doc["status"] == done.returncode
        return done.returncode, doc

    return run


def test_it_would_be_active(doctor):
    status, doc = doctor()
    assert (status, doc["verdict"], doc["reasons"], doc["failures"]) == (0, "active", [], {})
    assert doc["platform"] == {"name": "RocmPlatform", "architecture": "gfx950"}
    assert (doc["compute_units"], doc["situ_mode"]) == (256, "a4w4")
    assert doc["aiter"] == {"a16w4": [], "a8w4": [], "a4w4": []}
    assert doc["conflicts"] == []  # what vLLM itself sets at import is not called set by hand


def test_another_architecture(doctor):
    status, doc = doctor(FAKE_GCN_ARCH="gfx942")
    assert (status, doc["reasons"]) == (1, ["platform: gfx942; served: gfx950"])


@pytest.mark.slow
def test_a_partitioned_gpu(doctor):
    status, doc = doctor("cpu_ops.MI355X.multi_processor_count = 128")
    assert status == 1 and doc["compute_units"] == 128
    [reason] = doc["reasons"]
    assert reason.startswith("128 compute units")


def test_a_name_that_aiter_lacks(doctor):
    """Reasons are those of the mode that vLLM chooses; the other modes' are reported beside them."""
    before = "import aiter.fused_moe; aiter.fused_moe.get_2stage_cfgs = lambda token: None"
    status, doc = doctor(before)
    [reason] = doc["reasons"]
    assert status == 1 and reason.startswith("AITER: aiter.fused_moe.get_2stage_cfgs takes (token) where we pass")
    assert doc["aiter"]["a16w4"] == []
    status, doc = doctor(before, VLLM_ROCM_USE_AITER_MOE_SITUV2="a16w4")
    assert (status, doc["situ_mode"], doc["aiter"]["a8w4"]) == (0, "a16w4", [reason])


@pytest.mark.slow
def test_without_vllms_switch(doctor):
    status, doc = doctor(VLLM_ROCM_USE_AITER="0")
    assert status == 1
    assert doc["reasons"] == ["VLLM_ROCM_USE_AITER is '0': must be 1: without it vLLM runs these layers without AITER"]


@pytest.mark.slow
def test_not_named_by_vllm_plugins(doctor):
    status, doc = doctor(VLLM_PLUGINS="other")
    assert (status, doc["reasons"]) == (1, ["VLLM_PLUGINS='other' does not name k3moe, so vLLM does not load it"])


@pytest.mark.slow
def test_another_plugin_holds_the_name(doctor):
    status, doc = doctor(
        "from vllm.model_executor.custom_op import op_registry_oot\n"
        "class Other: pass\n"
        "op_registry_oot['ROCmLatentMoERunner'] = Other"
    )
    assert (status, doc["reasons"]) == (1, ["ROCmLatentMoERunner is already replaced by __main__.Other"])


@pytest.mark.slow
def test_a_registration_that_raises_is_broken(doctor):
    before = "import sys; sys.modules['vllm_k3moe.runner'] = None"
    status, doc = doctor(before)
    assert status == 2 and "vllm_k3moe.runner" in doc["failures"]["decision"]


def test_set_by_hand_against_vllms_choice(doctor):
    """A conflict, though vLLM has overwritten it in the process by the time it is told."""
    status, doc = doctor(AITER_SITUV2_A8W4="1")
    assert (status, doc["situ_mode"]) == (0, "a4w4")
    assert [c["variable"] for c in doc["conflicts"]] == ["AITER_SITUV2_A8W4"]


def test_the_mode_is_vllms_own_answer(doctor):
    """Set by either name, so that every vLLM is in a8w4; the name it does not read is said to be without effect."""
    status, doc = doctor(**dict(zip(MODE_VARIABLES, ("a8w4", "1"), strict=True)), AITER_SITUV2_A4W4="1")
    assert (status, doc["situ_mode"]) == (0, "a8w4")
    read = doc["situ_variable"]
    [unread, by_hand] = doc["conflicts"]
    assert {read, unread["variable"]} == set(MODE_VARIABLES) and unread["text"].endswith(f"which reads {read}")
    assert by_hand["variable"] == "AITER_SITUV2_A4W4" and "against vLLM's mode a8w4" in by_hand["text"]


@pytest.mark.slow
def test_off(doctor):
    status, doc = doctor(K3MOE="off")
    assert (status, doc["reasons"]) == (1, ["K3MOE=off"])
