"""How often each layer's batches took the fused path or vLLM's, and why. Counted where Python runs: not at replay."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Calls:
    """One process's calls. A graph replay runs no Python and counts nothing."""

    fused: int = 0
    fallback: Counter[str] = field(default_factory=Counter)  # by reason
    shared_fused: int = 0
    shared_fallback: Counter[str] = field(default_factory=Counter)  # of layers whose other calls are fused
    tail_fused: int = 0
    tail_fallback: Counter[str] = field(default_factory=Counter)  # likewise


CALLS = Calls()  # the process's, as a metrics registry is; nothing decides by it
