"""The folder that compiled kernels are kept in."""

import os

import pytest
import triton

from vllm_k3moe.cache import FLYDSL_CACHE, CacheError, private_folder
from vllm_k3moe.warmup import compiling_into

pytestmark = pytest.mark.host


def test_it_is_the_owners_alone(tmp_path):
    folder = private_folder(tmp_path / "a" / "b")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_folder(folder) == folder


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_one_that_others_may_write_is_refused(tmp_path, mode):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(CacheError, match=rf"(?s){folder}.*mode {mode:o}.*K3MOE_CACHE"):
        private_folder(folder)


def test_within_the_block_only(tmp_path, monkeypatch):
    monkeypatch.delenv(FLYDSL_CACHE, raising=False)
    before = triton.knobs.cache.dir
    with compiling_into(tmp_path / "cache"):
        assert triton.knobs.cache.dir == str(tmp_path / "cache" / "triton")
        assert os.environ[FLYDSL_CACHE] == str(tmp_path / "cache" / "flydsl")
    assert triton.knobs.cache.dir == before
    assert FLYDSL_CACHE not in os.environ


def test_after_a_fault_too(tmp_path, monkeypatch):
    monkeypatch.delenv(FLYDSL_CACHE, raising=False)
    before = triton.knobs.cache.dir
    with pytest.raises(RuntimeError, match="stop"), compiling_into(tmp_path / "cache"):
        raise RuntimeError("stop")
    assert triton.knobs.cache.dir == before and FLYDSL_CACHE not in os.environ


def test_a_flydsl_cache_of_the_users_stays(tmp_path, monkeypatch):
    monkeypatch.setenv(FLYDSL_CACHE, "/his")
    with compiling_into(tmp_path / "cache"):
        assert os.environ[FLYDSL_CACHE] == "/his"
    assert os.environ[FLYDSL_CACHE] == "/his"
