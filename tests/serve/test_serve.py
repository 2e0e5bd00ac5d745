"""A real `vllm serve` on a CPU, with and without our package: the same answers, to the last bit of every logprob."""

import json
import re

import pytest

pytestmark = pytest.mark.host
PROCESSES = ("EngineCore", "VllmWorker-0")


def processes(server) -> dict[str, int]:
    """The process ids of a server's parts, as vLLM's log names them."""
    found = {name: re.search(rf"^\({name} pid=(\d+)\)", server.log, re.M) for name in PROCESSES}
    return {"APIServer": server.pid} | {name: int(match[1]) for name, match in found.items() if match}


def test_the_answers_are_worth_comparing(servers):
    answers = [json.loads(text)["choices"][0] for text in servers["absent"].completions]
    assert len({answer["text"] for answer in answers}) == len(answers)
    assert all(len(answer["logprobs"]["token_logprobs"]) > 1 for answer in answers)


@pytest.mark.parametrize("name", ["installed", "off"])
def test_answers_are_those_of_vllm_without_us(servers, name):
    assert servers[name].completions == servers["absent"].completions


def test_a_plugin_that_meddles_is_seen(servers):
    """The comparison can fail: a thousandth more in the MoE layers is enough."""
    pairs = zip(servers["meddler"].completions, servers["absent"].completions, strict=True)
    assert all(got != want for got, want in pairs)


def test_loaded_and_inactive_in_every_process(servers):
    server = servers["installed"]
    parts = processes(server)
    assert len(set(parts.values())) == 3, parts
    said = {name: [text for pid, text in server.record if pid == number] for name, number in parts.items()}
    assert said == {name: ["DEBUG k3moe inactive: platform: not ROCm"] for name in parts}


def test_nothing_above_debug_level(servers):
    server = servers["installed"]
    assert {text.split()[0] for _, text in server.record} == {"DEBUG"}
    assert "k3moe" not in server.log


@pytest.mark.parametrize("name", ["off", "absent"])
def test_off_and_absent_say_nothing_at_all(servers, name):
    assert servers[name].record == []
    assert "k3moe" not in servers[name].log
