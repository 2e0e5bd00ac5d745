"""What the wheel and the sdist hold and demand."""

import tarfile
import zipfile
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = [pytest.mark.host, pytest.mark.xdist_group("packaging")]
ROOT = Path(__file__).parents[2]
OWN = {"torch", "triton", "vllm", "aiter", "amd-aiter"}  # builds that a ROCm image brings itself


def names(archive: Path) -> set[str]:
    with zipfile.ZipFile(archive) as file:
        return set(file.namelist())


def text(archive: Path, name: str) -> str:
    with zipfile.ZipFile(archive) as file:
        (path,) = (n for n in file.namelist() if n.endswith(f".dist-info/{name}"))
        return file.read(path).decode()


@pytest.fixture
def metadata(wheel: Path) -> Message:
    return Parser().parsestr(text(wheel, "METADATA"))


def test_identity(metadata):
    assert metadata["Name"] == "vllm-k3moe"
    assert metadata["Version"] == "0.1.0"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Requires-Python"] == ">=3.10"


def test_plain_install_brings_no_build_of_torch_triton_vllm_or_aiter(metadata):
    wanted = [Requirement(line) for line in metadata.get_all("Requires-Dist")]
    plain = {r.name for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})}
    assert plain & OWN == set()
    assert plain == {"rich"}


def test_extras(metadata):
    extras = metadata.get_all("Provides-Extra")
    assert set(extras) == {"standalone", "vllm", "test", "eval", "plot", "dev"}
    wanted = [Requirement(line) for line in metadata.get_all("Requires-Dist")]
    of = {e: {r.name for r in wanted if r.marker and r.marker.evaluate({"extra": e})} for e in extras}
    assert of["standalone"] == {"numpy", "torch", "triton"}
    for extra in set(extras) - {"standalone", "vllm"}:
        assert of[extra] & OWN == set(), extra


def test_entry_points(wheel):
    points = ConfigParser()
    points.read_string(text(wheel, "entry_points.txt"))
    assert dict(points["console_scripts"]) == {"k3moe": "vllm_k3moe.cli:main"}
    assert dict(points["vllm.general_plugins"]) == {"k3moe": "vllm_k3moe:register"}


def test_wheel_holds_one_package_with_what_the_links_lead_to(wheel):
    held = names(wheel)
    assert {n.split("/")[0] for n in held} == {"vllm_k3moe", "vllm_k3moe-0.1.0.dist-info"}
    for folder in ("kernels", "tuned"):
        there = {f"vllm_k3moe/{folder}/{p.name}" for p in (ROOT / folder).glob("*.py")}
        assert there and there <= held
    host = ROOT / "vllm_k3moe"
    assert {f"vllm_k3moe/{p.relative_to(host)}" for p in host.glob("**/*.py")} <= held
    tables = {f"vllm_k3moe/{p.relative_to(ROOT)}" for p in (ROOT / "tuned").glob("*/*.csv")}
    assert tables and {"vllm_k3moe/py.typed", *tables} <= held


def test_wheel_from_the_sdist_is_the_same(build, wheel, sdist, tmp_path):
    with tarfile.open(sdist) as file:
        links = [m.name for m in file if not (m.isreg() or m.isdir())]
        assert links == []
        file.extractall(tmp_path / "sdist", filter="data")
    (source,) = (tmp_path / "sdist").iterdir()
    assert not (source / "tests").exists()
    assert names(build("wheel", source, tmp_path / "wheel")) == names(wheel)
