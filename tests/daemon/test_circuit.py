"""Whether an endpoint is asked at all: a circuit that opens and lets one try."""

from __future__ import annotations

from daemon.models.circuit import FAILURES_MAX, OPEN_MAX_S, OPEN_S, Circuit


def failing(times: int, now: float = 0.0) -> Circuit:
    circuit = Circuit()
    for _ in range(times):
        circuit.note_failure("broken", now)
    return circuit


def test_a_circuit_opens_after_some_failures_in_a_row() -> None:
    assert failing(FAILURES_MAX - 1).lets_through(0.0)
    assert not failing(FAILURES_MAX).lets_through(0.0)


def test_a_success_between_failures_keeps_it_closed() -> None:
    circuit = failing(FAILURES_MAX - 1)
    circuit.note_success()
    circuit.note_failure("broken", 0.0)

    assert circuit.lets_through(0.0)
    assert circuit.reason == "broken"


def test_an_open_circuit_lets_one_try_and_the_next_one_only_later() -> None:
    circuit = failing(FAILURES_MAX)
    early, due, second = (circuit.lets_through(at) for at in (OPEN_S - 0.1, OPEN_S, OPEN_S))
    circuit.note_failure("still", OPEN_S)
    later = [circuit.lets_through(at) for at in (OPEN_S * 3 - 0.1, OPEN_S * 3)]

    assert (early, due, second) == (False, True, False)
    assert later == [False, True], "twice as long as before"


def test_a_try_that_goes_well_closes_it() -> None:
    circuit = failing(FAILURES_MAX)
    circuit.lets_through(OPEN_S)
    circuit.note_success()

    assert [circuit.lets_through(OPEN_S) for _ in range(3)] == [True, True, True]
    assert circuit.reason is None


def test_calls_that_fail_together_open_it_no_longer_than_one() -> None:
    together = failing(FAILURES_MAX + 20)

    assert together.lets_through(OPEN_S)


def test_it_is_never_open_for_longer_than_its_bound() -> None:
    circuit, now = failing(FAILURES_MAX), 0.0
    for _ in range(20):
        now += OPEN_MAX_S
        assert circuit.lets_through(now)
        circuit.note_failure("broken", now)

    assert not circuit.lets_through(now + OPEN_MAX_S - 0.1)
    assert circuit.lets_through(now + OPEN_MAX_S)


def test_a_server_that_asks_to_be_left_alone_is_at_once() -> None:
    circuit = Circuit()
    circuit.note_failure("429", 10.0, wait_s=100.0)

    assert not circuit.lets_through(109.9)
    assert circuit.lets_through(110.0)


def test_it_says_when_the_next_try_may_go_out() -> None:
    circuit = failing(FAILURES_MAX)

    assert [circuit.retry_in_s(at) for at in (0.0, 1.0, OPEN_S, OPEN_S + 1)] == [OPEN_S, OPEN_S - 1, 0.0, 0.0]
    assert failing(FAILURES_MAX - 1).retry_in_s(0.0) == 0.0
