"""What a launch executed."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Stats:
    """Of one launch. Instructions are a wave's, and a count of them is repeatable; seconds are this machine's."""

    waves: int = 0
    instructions: int = 0
    seconds: float = 0.0
    cache_ops: int = 0  # buffer_wbl2 sc1 and buffer_inv sc1
    workgroups: dict[tuple[int, int, int], int] = field(default_factory=dict)  # instructions of each
    histogram: Counter[str] = field(default_factory=Counter)  # instructions by mnemonic, without _e32 and _e64

    def __str__(self) -> str:
        rate = self.instructions / max(self.seconds, 1e-9)
        return f"{self.instructions} wave instructions, {self.waves} waves, {self.seconds:.2f} s, {rate:,.0f} a second"
