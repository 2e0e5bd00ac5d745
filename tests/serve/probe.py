"""Write down what our logger says, whatever vLLM's log level, in every process: a .pth file imports this in each.

vLLM's own log cannot show the API server's debug lines: it loads plugins before it sets up its logging. That set-up
then takes handlers and level from every logger below `vllm`; hence a class and not a handler.
"""

import logging
import os


class Recorded(logging.Logger):
    """Every record goes to the file; beyond that, those go on that would have."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802  logging's name
        return True

    def handle(self, record: logging.LogRecord) -> None:
        with open(os.environ["K3MOE_TEST_RECORD"], "a") as file:
            file.write(f"{os.getpid()} {record.levelname} {record.getMessage()}\n")
        if record.levelno >= self.getEffectiveLevel():
            super().handle(record)


if "K3MOE_TEST_RECORD" in os.environ:
    logging.getLogger("vllm.k3moe").__class__ = Recorded
