"""Messages of a probe: timed, lost, and late."""

from headrace.observe.end_to_end import WINDOW, EndToEnd


def test_a_message_that_comes_is_timed() -> None:
    figures = EndToEnd(10.0)
    figures.send(1, 100.0)
    figures.ack(1, 100.5)
    figures.receive(1, 101.0)
    assert (figures.sent, figures.acked, figures.received, figures.lost, figures.pending) == (1, 1, 1, 0, 0)
    assert (figures.last_s, figures.max_s, figures.quantile_s(0.5), figures.ack_quantile_s(0.99)) == (
        1.0,
        1.0,
        1.0,
        0.5,
    )
    assert (figures.roundtrip_s.count, figures.ack_s.total) == (1, 0.5)


def test_a_message_may_come_before_its_acknowledgement() -> None:
    figures = EndToEnd(10.0)
    figures.send(1, 100.0)
    figures.receive(1, 100.25)
    figures.ack(1, 100.5)
    assert (figures.received, figures.acked, figures.ack_s.count, figures.ack_s.total) == (1, 1, 1, 0.25)


def test_a_message_that_does_not_come_in_time_is_lost_even_if_it_comes_later() -> None:
    figures = EndToEnd(10.0)
    figures.send(1, 100.0)
    figures.send(2, 105.0)
    figures.expire(109.9)
    assert figures.lost == 0
    figures.expire(110.0)
    assert (figures.lost, figures.pending) == (1, 1)
    figures.receive(1, 111.0)
    figures.receive(1, 111.0)
    assert (figures.lost, figures.late, figures.received, figures.last_s) == (1, 1, 0, None)


def test_a_message_that_cannot_be_sent_is_lost() -> None:
    figures = EndToEnd(10.0)
    figures.send(1, 100.0)
    figures.fail(1, "no broker answers")
    assert (figures.lost, figures.failed, figures.last_error, figures.pending) == (1, 1, "no broker answers", 0)


def test_messages_of_others_and_duplicates_do_not_count() -> None:
    figures = EndToEnd(10.0)
    figures.send(1, 100.0)
    for number in (1, 1, 7):
        figures.receive(number, 101.0)
    assert (figures.received, figures.late) == (1, 0)


def test_quantiles_are_of_the_last_thousand_and_the_maximum_is_of_all() -> None:
    figures = EndToEnd(1000.0)
    for number in range(WINDOW + 1):
        figures.send(number, 0.0)
        figures.receive(number, 100.0 if number == 0 else number / 1000)
    assert figures.max_s == 100.0
    assert figures.quantile_s(1.0) == 1.0
    assert figures.quantile_s(0.5) == 0.501
