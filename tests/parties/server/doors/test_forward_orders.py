"""Which door forwards what: in turn, again when a door is lost, and not when the round is over."""

import trio

from parties.server.doors.forward_orders import MOST_OF_A_DOOR, ForwardOrders
from parties.server.peer.forwards import StoredPart
from parties.server.store_layout import RequestKey

ROUND = bytes(32)


async def nothing():
    return None


def stored(client, over=None):
    return StoredPart(
        ROUND, 1, RequestKey(client, "submit", 0), client.encode() * 4, trio.Event() if over is None else over
    )


class Doors:
    def __init__(self):
        self.orders = ForwardOrders()
        self.given = {}

    def open(self, name):
        self.given[name] = []
        self.orders.add(name, self.given[name].append)

    def forward(self, *clients):
        for client in clients:
            self.orders.forward(stored(client), nothing)

    def clients(self, name):
        return [order.client for order in self.given[name]]


def test_orders_wait_for_a_door_and_go_to_the_one_with_the_fewest():
    doors = Doors()
    doors.forward("anna")
    doors.open("door-1")
    doors.open("door-2")
    doors.forward("ben", "carl", "dora")
    assert doors.clients("door-1") == ["anna", "carl"]
    assert doors.clients("door-2") == ["ben", "dora"]
    assert doors.orders.waiting == 4
    first = doors.given["door-1"][0]
    assert (first.order, first.round_id, first.number, first.part) == (1, ROUND, 1, b"annaannaannaanna")


def test_a_part_goes_to_the_door_that_has_put_it_unless_that_one_gives_it_back_or_is_gone():
    doors = Doors()
    for name in ("door-1", "door-2"):
        doors.open(name)
    for client in ("anna", "ben", "carl"):
        doors.orders.note("door-2", stored(client).part)
        doors.forward(client)
    assert doors.clients("door-2") == ["anna", "ben", "carl"]
    doors.orders.not_forwarded("door-2", 1)
    assert doors.clients("door-1") == ["anna"]
    doors.orders.note("door-9", stored("dora").part)
    doors.forward("dora")
    assert doors.clients("door-1") == ["anna", "dora"]


def test_a_door_that_has_put_more_than_it_can_forward_is_helped():
    doors = Doors()
    for name in ("door-1", "door-2"):
        doors.open(name)
    clients = [f"client-{number}" for number in range(MOST_OF_A_DOOR + 2)]
    for client in clients:
        doors.orders.note("door-1", stored(client).part)
        doors.forward(client)
    assert doors.clients("door-1") == clients[:MOST_OF_A_DOOR]
    assert doors.clients("door-2") == clients[MOST_OF_A_DOOR:]


def test_a_door_has_a_few_orders_at_a_time():
    doors = Doors()
    doors.open("door-1")
    doors.forward(*(f"client-{number}" for number in range(MOST_OF_A_DOOR + 2)))
    assert len(doors.given["door-1"]) == MOST_OF_A_DOOR
    doors.orders.forwarded("door-1", 1)
    assert doors.clients("door-1")[-1] == f"client-{MOST_OF_A_DOOR}"
    assert doors.orders.waiting == MOST_OF_A_DOOR + 1


def test_what_a_lost_door_had_is_ordered_of_another_and_its_late_word_counts_for_nothing():
    doors = Doors()
    doors.open("door-1")
    doors.forward("anna", "ben")
    doors.open("door-2")
    doors.orders.remove("door-1")
    assert doors.clients("door-2") == ["anna", "ben"]
    doors.orders.forwarded("door-1", 1)
    assert doors.orders.waiting == 2


def test_what_is_given_back_is_ordered_again_under_another_number():
    doors = Doors()
    doors.open("door-1")
    doors.forward("anna")
    doors.orders.not_forwarded("door-1", 1)
    assert [(order.order, order.client) for order in doors.given["door-1"]] == [(1, "anna"), (2, "anna")]
    doors.orders.forwarded("door-1", 1)
    assert doors.orders.waiting == 1
    doors.orders.forwarded("door-1", 2)
    assert doors.orders.waiting == 0


def test_a_part_is_ordered_once_until_it_is_forwarded():
    doors = Doors()
    doors.open("door-1")
    doors.forward("anna", "anna")
    assert doors.clients("door-1") == ["anna"]
    doors.orders.forwarded("door-1", 1)
    doors.forward("anna")  # the servers have met anew
    assert doors.clients("door-1") == ["anna", "anna"]


async def test_of_a_round_that_is_over_nothing_is_ordered():
    doors, over = Doors(), trio.Event()
    doors.orders.forward(stored("anna", over), nothing)
    over.set()
    doors.open("door-1")
    assert doors.given["door-1"] == []
    assert doors.orders.waiting == 0
