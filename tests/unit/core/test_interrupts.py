import os
import signal
import threading

import pytest

from harness.core.interrupts import held_back


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_inside_it_is_noted_and_afterwards_it_works_as_before(number: signal.Signals):
    before = signal.getsignal(number)
    with held_back() as arrived:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        signal.sigtimedwait([], 0)  # returns when the signals have been delivered
    assert arrived == [number, number]
    assert signal.getsignal(number) is before


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_back() as arrived:
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        assert arrived == []
    finally:
        signal.signal(signal.SIGINT, before)


def test_handlers_come_back_after_an_exception():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), held_back():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_change_nothing():
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with held_back() as arrived:
            seen.extend([signal.getsignal(signal.SIGINT), list(arrived)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, []]
