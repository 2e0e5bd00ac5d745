"""`k3moe doctor` where vLLM, torch, triton and AITER are missing or broken: a Python without site-packages."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_k3moe import aiter_locks, doctor, doctor_host, doctor_text
from vllm_k3moe.gates import MODE_VARIABLES, MODES

pytestmark = pytest.mark.host
ROOT = Path(__file__).parents[1]
KEYS = {
    "verdict", "status", "reasons", "unknown", "failures", "versions", "settings", "entry_point", "conflicts", "table",
    "cache", "locks", "platform", "compute_units", "situ_mode", "situ_variable", "aiter",
}  # fmt: skip
AITER_UNSET = "VLLM_ROCM_USE_AITER is not set: must be 1: without it vLLM runs these layers without AITER"


@pytest.fixture
def examine(tmp_path):
    """Run it with nothing but the standard library, `tmp_path/site` and these variables; (exit status, document)."""
    (tmp_path / "site").mkdir()

    def run(*arguments: str, **variables: str):
        environment = {
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path / "site"))),
            "HOME": str(tmp_path),
            "AITER_JIT_DIR": str(tmp_path / "jit"),
            **variables,
        }
        command = [sys.executable, "-S", "-m", "vllm_k3moe.cli", "doctor", "--json", *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        doc = json.loads(done.stdout)
        assert doc["status"] == done.returncode
        assert set(doc) == KEYS
        return done.returncode, doc

    return run


def package(tmp_path, name: str, code: str) -> None:
    (tmp_path / "site" / name).mkdir()
    (tmp_path / "site" / name / "__init__.py").write_text(code)


def install(tmp_path) -> None:
    """The plugin's metadata, as pip would leave it."""
    folder = tmp_path / "site" / "vllm_k3moe-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-k3moe\nVersion: 0.1.0\n")
    (folder / "entry_points.txt").write_text("[vllm.general_plugins]\nk3moe = vllm_k3moe:register\n")


def test_with_nothing_installed(examine):
    status, doc = examine()
    assert (status, doc["verdict"], doc["failures"]) == (1, "inactive", {})
    missing = [f"{name} is not installed" for name in ("vllm", "torch", "triton", "aiter")]
    assert doc["reasons"][:4] == missing and doc["reasons"][-1] == AITER_UNSET
    assert doc["versions"]["torch"] == "-" and doc["versions"]["python"].startswith("3.")
    assert [doc[key] for key in ("platform", "compute_units", "situ_mode", "situ_variable", "aiter")] == [None] * 5
    assert "when a model is built" in doc["unknown"]


def test_broken_libraries_are_named_and_the_rest_goes_on(examine, tmp_path):
    install(tmp_path)
    package(tmp_path, "torch", "print('on stdout'); raise ImportError('libtorch_hip.so: no such file')")
    package(tmp_path, "vllm", "import torch")
    package(tmp_path, "triton", "")
    package(tmp_path, "aiter", "")
    status, doc = examine(VLLM_ROCM_USE_AITER="1")
    assert (status, doc["verdict"], doc["reasons"]) == (2, "broken", [])
    assert set(doc["failures"]) == {"platform", "compute_units", "decision", "situ_mode", "situ_variable", "aiter"}
    for error in doc["failures"].values():
        assert error == "ImportError: libtorch_hip.so: no such file"
    assert len(doc["table"]["rows"]) == 15 and doc["table"]["rows"][2]["first"] == 3
    assert doc["entry_point"]["registered"]


def test_a_probe_that_exits_does_not_end_it(examine, tmp_path):
    for name in ("torch", "triton", "aiter"):
        package(tmp_path, name, "")
    package(tmp_path, "vllm", "raise SystemExit('a library that exits')")
    status, doc = examine()
    assert status == 2 and doc["failures"]["platform"] == "SystemExit: a library that exits"


@pytest.mark.parametrize("probe", ["tile_table", "cache", "conflicts", "entry_point", "settings", "all_versions"])
def test_any_probe_may_fail(probe, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("on purpose")

    monkeypatch.setattr(doctor_host, probe, fail)
    doc = doctor.examine()
    name = {"tile_table": "table", "all_versions": "versions"}.get(probe, probe)
    assert doc[name] is None and doc["failures"][name] == "RuntimeError: on purpose"
    assert (doc["status"], set(doc)) == (2, KEYS)
    doctor_text.show(doc)


@pytest.mark.parametrize(
    "plugins, loaded", [(None, True), ("k3moe", True), ("other,k3moe", True), ("", False), ("other, k3moe", False)]
)
def test_vllm_plugins(examine, tmp_path, plugins, loaded):
    """By vLLM's reading: split at commas, nothing stripped, empty means none."""
    install(tmp_path)
    _, doc = examine(**({} if plugins is None else {"VLLM_PLUGINS": plugins}))
    assert doc["entry_point"]["registered"] and doc["entry_point"]["VLLM_PLUGINS"] == plugins
    reason = f"VLLM_PLUGINS={plugins!r} does not name k3moe, so vLLM does not load it"
    assert doc["entry_point"]["reasons"] == ([] if loaded else [reason])
    assert (reason in doc["reasons"]) is not loaded


def test_an_entry_point_that_is_not_there(examine):
    _, doc = examine()
    assert not doc["entry_point"]["registered"]
    assert any("vllm-k3moe is not installed in this Python" in reason for reason in doc["reasons"])


def test_a_wrong_setting_is_broken(examine):
    status, doc = examine(K3MOE="always")
    assert (status, doc["verdict"]) == (2, "broken")
    assert doc["settings"]["errors"] == ["K3MOE='always'; accepted: auto, off, strict"]
    assert "setting: K3MOE='always'; accepted: auto, off, strict" in doc["reasons"]


def test_off_is_a_reason(examine):
    status, doc = examine(K3MOE="off")
    assert status == 1 and "K3MOE=off" in doc["reasons"]


@pytest.mark.parametrize(
    "variables, names",
    [
        ({}, []),
        ({"VLLM_ROCM_USE_AITER": "true"}, []),
        ({"VLLM_ROCM_USE_AITER": "0"}, ["VLLM_ROCM_USE_AITER"]),
        ({"VLLM_ROCM_USE_AITER_MOE": "0"}, ["VLLM_ROCM_USE_AITER_MOE"]),
        ({"AITER_CONFIG_FMOE": "/x.csv"}, ["AITER_CONFIG_FMOE"]),
        ({"AITER_FLYDSL_STAGE2_FP8": "1"}, ["AITER_FLYDSL_STAGE2_FP8"]),
        ({"AITER_ONLINE_TUNE": "1"}, ["AITER_ONLINE_TUNE"]),
        ({"AITER_ONLINE_TUNE": "0", "AITER_FLYDSL_STAGE2_FP8": "0"}, []),
    ],
)
def test_conflicting_environment(variables, names):
    found = doctor_host.conflicts({"VLLM_ROCM_USE_AITER": "1", **variables}, None, None)
    assert [c["variable"] for c in found] == names
    assert [c["value"] for c in found] == [variables[name] for name in names]


@pytest.mark.parametrize("read, unread", [MODE_VARIABLES, MODE_VARIABLES[::-1]])
@pytest.mark.parametrize(
    "mode, variables, names",
    [
        ("a4w4", {"AITER_SITUV2_A4W4": "1"}, []),
        ("a4w4", {"AITER_SITUV2_A4W4": "0"}, ["AITER_SITUV2_A4W4"]),
        ("a4w4", {"AITER_SITUV2_A8W4": "1"}, ["AITER_SITUV2_A8W4"]),
        ("a8w4", {"AITER_SITUV2_A8W4": "1", "AITER_SITUV2_A4W4": "0"}, []),
        ("a16w4", {"AITER_SITUV2_A8W4": "1", "AITER_SITUV2_A4W4": "1"}, ["AITER_SITUV2_A8W4", "AITER_SITUV2_A4W4"]),
        ("unknown", {"AITER_SITUV2_A8W4": "1"}, []),
        (None, {"AITER_SITUV2_A8W4": "1"}, []),
    ],
)
def test_variables_against_the_mode_that_vllm_chose(mode, variables, names, read, unread):
    environ = {"VLLM_ROCM_USE_AITER": "1", read: "1", **variables}
    found = doctor_host.conflicts(environ, mode, read)
    assert [c["variable"] for c in found] == names
    for text in (str(c["text"]) for c in found):
        assert f"vLLM's mode {mode}; vLLM " in text and f"set {read} alone" in text
    if mode in MODES:
        [first, *_] = doctor_host.conflicts({**environ, unread: "1"}, mode, read)
        assert (first["variable"], first["text"]) == (unread, f"not read by this vLLM, which reads {read}")


def test_which_conflicts_are_reasons():
    found = doctor_host.conflicts({"AITER_FLYDSL_STAGE2_FP8": "1", "AITER_ONLINE_TUNE": "1"}, None, None)
    assert doctor_host.conflict_reasons(found, "a16w4") == [AITER_UNSET]
    [_, fp8] = doctor_host.conflict_reasons(found, "a8w4")
    assert fp8.startswith("AITER_FLYDSL_STAGE2_FP8 is '1': changes stage 2's arguments")


def lock(path: Path, text: str, age: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_stale_locks_with_their_age(examine, tmp_path):
    stale = lock(tmp_path / "jit/build/lock_module_moe", "", 7200)
    lock(tmp_path / "jit/build/module_moe", "no lock", 7200)
    _, doc = examine()
    [found] = [k for k in doc["locks"] if k["path"].startswith(str(tmp_path))]
    assert (found["path"], found["state"]) == (str(stale), "stale")
    assert 7200 <= found["age_s"] < 7260
    assert doctor_text.age(found["age_s"]) == "2 h"


def test_states_of_locks(tmp_path):
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    host = socket.gethostname()
    want = {
        lock(tmp_path / "jit/build/lock_a", f"{os.getpid()}\n{host}\n", 9000): "held",
        lock(tmp_path / "jit/build/lock_b", f"{done.stdout.strip()}\n{host}\n", 1): "stale",
        lock(tmp_path / "jit/build/module/build/lock", "1\nelsewhere\n", 9000): "of host elsewhere",
        lock(tmp_path / "jit/build/lock_c", "", 1): "held",  # between its making and its writing
        lock(tmp_path / "configs/tuned_fmoe.csv.lock", "", 60): "stale",
        lock(tmp_path / "configs/tuned_fmoe.csv.lock.steal", "", 60): "stale",
    }
    lock(tmp_path / "configs/tuned_fmoe.csv", "a table", 60)
    found = aiter_locks.locks({"AITER_JIT_DIR": str(tmp_path / "jit")}, tmp_path / "configs")
    assert {Path(k["path"]): k["state"] for k in found} == want


def test_jit_folder_in_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = lock(tmp_path / ".aiter/jit/build/lock_x", "", 60)
    assert [k["path"] for k in aiter_locks.locks({}, tmp_path / "none") if str(tmp_path) in k["path"]] == [str(path)]


def test_a_cache_that_others_can_write(examine, tmp_path):
    folder = tmp_path / "cache"
    (folder / "triton").mkdir(parents=True)
    (folder / "triton" / "kernel.hsaco").write_bytes(bytes(10))
    folder.chmod(0o777)
    _, doc = examine(K3MOE_CACHE=str(folder))
    top, triton = doc["cache"]["top"], doc["cache"]["triton"]
    assert (top["mode"], triton["files"], triton["bytes"], triton["problem"]) == ("777", 1, 10, None)
    assert top["problem"] in doc["reasons"] and "mode 777" in top["problem"]
    folder.chmod(0o700)
    assert examine(K3MOE_CACHE=str(folder))[1]["cache"]["top"]["problem"] is None


def test_a_cache_that_is_no_folder(examine, tmp_path):
    (tmp_path / "file").write_text("")
    _, doc = examine(K3MOE_CACHE=str(tmp_path / "file"))
    assert doc["cache"]["top"]["problem"] == f"cache folder {tmp_path}/file: {tmp_path}/file is no folder"
    assert not doc["failures"]


def test_the_looking_leaves_no_trace(examine, tmp_path):
    examine(K3MOE_CACHE=str(tmp_path / "cache"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["site"]


def test_a_broken_table_is_a_reason(tmp_path, monkeypatch):
    good = doctor_host.tables.TUNED / "gfx950" / "a16w4-i384.csv"
    (tmp_path / "gfx950").mkdir()
    (tmp_path / "gfx950" / good.name).write_text(good.read_text().replace("1,16,32,256", "1,15,32,256", 1))
    found = doctor_host.tile_table(tmp_path)
    assert found["rows"] == [] and "m=15 is not a multiple of 16" in found["errors"][0]
    monkeypatch.setattr(doctor_host, "tile_table", lambda: found)
    assert f"tile table: {found['errors'][0]}" in doctor.examine()["reasons"]


def test_the_text(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("K3MOE_CACHE", str(tmp_path / "[red]cache"))
    monkeypatch.setenv("VLLM_PLUGINS", "other")
    assert doctor.run(as_json=False) == 1
    out = capfd.readouterr().out
    assert out.startswith("k3moe would be inactive")
    assert "VLLM_PLUGINS='other' does not name k3moe" in out and "8193-16384" in out
    assert str(tmp_path / "[red]cache") in out
