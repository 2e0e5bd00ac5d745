"""What the emulator raises."""


class EmulatorError(RuntimeError):
    """The code did something wrong, or something that is not emulated; the message says what and where."""
