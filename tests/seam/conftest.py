"""vLLM's own Python on a CPU that it takes for one MI355X, with our plugin and a stand-in for AITER.

Run apart from the other tests, since the platform is a property of the process:

    pytest --backend gfx950 tests/seam
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "platform"), str(HERE)]
os.environ |= {
    "VLLM_ROCM_USE_AITER": "1",
    "VLLM_DISABLE_SHARED_EXPERTS_STREAM": "1",  # a side stream needs a GPU
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


@pytest.fixture(scope="session")
def vllm() -> Any:
    """vLLM on the stand-in platform, one rank, our plugin registered as vLLM registers it."""
    import cpu_ops

    cpu_ops.install()
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    import vllm as module

    return module


@pytest.fixture(scope="session")
def one_rank(vllm: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A process group of one, and the operations that a layer calls."""
    import cpu_ops
    import layers
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    config = layers.engine_config(tmp_path_factory.mktemp("config"), layers.text_config())
    store = tmp_path_factory.mktemp("rendezvous") / "store"
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file://{store}", 0, backend="gloo")
        initialize_model_parallel(1, 1, backend="gloo")
    cpu_ops.install_vllm_ops()
    return vllm


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment with nothing of ours set but a cache of the test's own."""
    for name in [name for name in os.environ if name.startswith("K3MOE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("K3MOE_CACHE", str(tmp_path / "cache"))
    return monkeypatch


@pytest.fixture(scope="module")
def layer(request: pytest.FixtureRequest, one_rank: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A KimiMoE of Kimi-K3's full shape, loaded, in the SiTU mode that the parameter names (default a16w4)."""
    import layers
    from vllm._aiter_ops import rocm_aiter_ops

    from vllm_k3moe import report

    mode = getattr(request, "param", "a16w4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ROCM_USE_AITER_MOE_SITUV2", mode)
        patch.setenv("VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4", str(int(mode == "a8w4")))  # its name in 0.29 and 0.30
        patch.setenv("K3MOE_CACHE", str(tmp_path_factory.mktemp("cache") / "k3moe"))
        rocm_aiter_ops.refresh_env_variables()
        if report.situ_mode() != mode:
            pytest.skip(f"this vLLM has no {mode}")
        config = layers.engine_config(tmp_path_factory.mktemp("config"), layers.text_config(), load_format="auto")
        yield layers.Layer(config, seed=1)
    rocm_aiter_ops.refresh_env_variables()


@pytest.fixture
def calls() -> Iterator[list[Any]]:
    """Calls of the stand-in AITER in this test."""
    import aiter

    aiter.CALLS.clear()
    yield aiter.CALLS
    aiter.CALLS.clear()
    aiter.DO.clear()
