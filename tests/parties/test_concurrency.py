"""Events that occur more than once."""

import trio

from parties.concurrency import RecurringEvent


async def test_an_event_occurs_for_those_who_wait_and_can_occur_again(autojump_clock: trio.testing.MockClock) -> None:
    event, heard = RecurringEvent(), []

    async def listen() -> None:
        for number in range(2):
            await event.wait()
            heard.append(number)

    event.set()  # nobody waits yet
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        for number in range(2):
            await trio.testing.wait_all_tasks_blocked()
            assert heard == list(range(number))
            event.set()
    assert heard == [0, 1]


async def test_the_next_occurrence_can_be_taken_before_the_check() -> None:
    event = RecurringEvent()
    occurrence = event.next
    event.set()
    assert occurrence.is_set()
    assert not event.next.is_set()
