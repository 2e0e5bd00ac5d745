"""`register()` in vLLM's own plugin loader: when it takes the runner's place, and what it says when it does not."""

import logging
import os
import subprocess
import sys

import pytest

import vllm_k3moe
from vllm_k3moe import envs, gates

pytestmark = pytest.mark.on("gfx950")


@pytest.fixture
def registry(vllm):
    """vLLM's registry of replaced layers, as it was found."""
    from vllm.model_executor.custom_op import op_registry_oot

    before = dict(op_registry_oot)
    yield op_registry_oot
    op_registry_oot.clear()
    op_registry_oot.update(before)


def test_vllm_has_loaded_the_plugin(registry):
    """By its entry point, through vLLM's own loader."""
    assert registry["ROCmLatentMoERunner"].__name__ == "K3LatentMoERunner"


def test_twice_is_once(registry, environment):
    before = registry["ROCmLatentMoERunner"]
    vllm_k3moe.register()
    assert registry["ROCmLatentMoERunner"] is before


def test_off_does_nothing(registry, environment):
    registry.clear()
    environment.setenv("K3MOE", "off")
    vllm_k3moe.register()
    assert not registry


def test_it_stands_down_where_another_holds_the_name(registry, environment, caplog):
    class Other:
        pass

    registry["ROCmLatentMoERunner"] = Other
    environment.setenv("K3MOE", "strict")
    with caplog.at_level(logging.INFO, "vllm.k3moe"):
        vllm_k3moe.register()
    assert registry["ROCmLatentMoERunner"] is Other
    assert f"ROCmLatentMoERunner is already replaced by {Other.__module__}.{Other.__qualname__}" in caplog.text


def test_a_fault_inside_is_one_line(registry, environment, caplog, monkeypatch):
    from vllm_k3moe import plugin

    def fail(settings):
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(plugin, "register", fail)
    vllm_k3moe.register()
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["k3moe inactive: registering failed: RuntimeError: broken on purpose"]


@pytest.mark.parametrize(
    "rocm, arch, version, words",
    [
        (False, "", "0.33.0", "not ROCm"),
        (True, "gfx942", "0.33.0", "gfx942; served: gfx950"),
        (True, "gfx950", "0.28.1", "vLLM 0.28.1 is untested"),
        (True, "gfx950", "0.34.0", "vLLM 0.34.0 is untested"),
        (True, "gfx950", "dev", "vLLM dev is untested"),
    ],
)
def test_platforms_that_are_not_served(rocm, arch, version, words):
    [reason] = gates.platform_reasons(envs.Settings(), rocm, arch, version)
    assert words in reason


def test_the_platform_that_is():
    assert gates.platform_reasons(envs.Settings(), True, "gfx950", "0.33.0") == []


def test_where_no_part_is_to_be_fused():
    assert gates.platform_reasons(envs.read({"K3MOE_FUSE": "none"}), True, "gfx950", "0.33.0") == ["K3MOE_FUSE=none"]


def test_any_architecture_for_testing():
    assert gates.platform_reasons(envs.Settings(allow_any_arch=True), True, "gfx942", "0.33.0") == []


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_what_is_imported(arch):
    """In a process of its own: nothing of AITER's that we call, no HIP; off gfx950 not even vLLM's models."""
    code = (
        "import sys, torch, vllm_k3moe; vllm_k3moe.register(); "
        "assert not torch.cuda.is_initialized(); assert 'aiter.fused_moe' not in sys.modules; "
        "print('vllm.models.kimi_k3.amd.latent_moe_runner' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FAKE_GCN_ARCH": arch, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert out.strip().splitlines()[-1] == str(arch == "gfx950")
