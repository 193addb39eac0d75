"""The kernel's timer as a descriptor, set to instants of CLOCK_MONOTONIC (Python has it from 3.13 on)."""

import ctypes
import os

_CLOCK_MONOTONIC, _NONBLOCK, _CLOEXEC, _ABSOLUTE = 1, 0o4000, 0o2000000, 1
_SECOND_NS = 1_000_000_000


class _Setting(ctypes.Structure):
    _fields_ = [
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    ]


class TimerFd:
    """Becomes readable when its instant comes, within tens of microseconds. `fd` is its descriptor."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def ring_at(self, ns: int) -> None:
        """Once, at `ns`, or now if that is past."""
        self._set(_ABSOLUTE, _Setting(0, 0, *divmod(max(ns, 1), _SECOND_NS)))  # 0 would disarm it

    def ring_every(self, ns: int) -> None:
        """Again and again, first `ns` from now; 0 for never."""
        self._set(0, _Setting(*divmod(ns, _SECOND_NS), *divmod(ns, _SECOND_NS)))

    def rang(self) -> bool:
        """Whether it has rung since it was last asked, which makes it unreadable again."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.fd)

    def _set(self, flags: int, setting: _Setting) -> None:
        self._libc.timerfd_settime(self.fd, flags, ctypes.byref(setting), None)
