"""Token counts, blocks and routings that the kernel tests share, and buffers that show a stray write."""

import torch

BLOCKS = (16, 32, 64, 128)
# every count around a power of two, and verify batches of speculative decoding: requests * (k + 1)
TOKENS = (*range(1, 18), 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512)
VERIFY = (20, 24, 40, 160, 400)
# enough for every launch, every token bucket and both sides of a block to run at the true shape
TRUE_SHAPE = (1, 2, 3, 4, 7, 8, 16, 17, 32, 33)

GUARD = 64  # bytes kept before and after a guarded buffer
POISON = 0xFF


class Guarded:
    """A tensor of poisoned bytes inside a larger poisoned allocation."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        size = dtype.itemsize * int(torch.Size(shape).numel())
        self.raw = torch.full((GUARD + size + GUARD,), POISON, dtype=torch.uint8, device=device)
        self.tensor = self.raw[GUARD : GUARD + size].view(dtype).view(shape)

    def intact(self) -> bool:
        """Whether the bytes before and after the tensor are still poison."""
        return bool((self.raw[:GUARD] == POISON).all() and (self.raw[-GUARD:] == POISON).all())

    def bytes(self) -> torch.Tensor:
        return self.raw[GUARD:-GUARD].cpu()


def poison(tensor: torch.Tensor) -> None:
    """Overwrite a contiguous tensor with 0xFF bytes."""
    tensor.view(torch.uint8).fill_(POISON)


def uniform(m: int, e: int, k: int, rng: torch.Generator) -> torch.Tensor:
    return torch.rand(m, e, generator=rng).argsort(dim=1)[:, :k].to(torch.int32)


def routings(m: int, e: int, k: int, rng: torch.Generator) -> dict[str, torch.Tensor]:
    """Expert ids int32 [m, k], distinct in a row, that make the blocks come out differently."""
    row = torch.arange(k, dtype=torch.int32)
    token = torch.arange(m, dtype=torch.int32)[:, None]
    return {
        "uniform": uniform(m, e, k, rng),
        "all tokens on the same experts": (row + e // 3).expand(m, k).contiguous(),
        "only the last experts": (e - k + row.flip(0)).expand(m, k).contiguous(),
        "the first and the last": torch.where(row == 0, 0, e - k + row).to(torch.int32).expand(m, k).contiguous(),
        "every pair its own expert": ((token * k + row) % e).to(torch.int32),
        "a hot expert": torch.cat([torch.full((m, 1), e // 2), uniform(m, e // 2, k - 1, rng)], 1).to(torch.int32),
    }
