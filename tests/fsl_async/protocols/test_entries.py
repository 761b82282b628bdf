"""Entries against plain dictionaries: the same content in every state, and nothing is copied on the usual way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsl_async.protocols.entries import Entries

CLIENTS = st.sampled_from(["alice", "bob", "carol", "dave", "eve"])


@given(st.data())
def test_every_view_stays_what_it_was(data):
    views = [(Entries(), {})]
    for _ in range(data.draw(st.integers(0, 12))):
        view, plain = data.draw(st.sampled_from(views))
        client, digest = data.draw(CLIENTS), data.draw(st.sampled_from([b"1", b"2"]))
        if client not in view:
            views.append((view.extended(client, digest), {**plain, client: digest}))
    for view, plain in views:
        assert view == plain
        assert plain == view
        assert list(view.items()) == list(plain.items())
        assert [client in view for client in "abc"] == [client in plain for client in "abc"]
        for other, content in views:
            assert (view == other) == (plain == content)
            assert view != other or hash(view) == hash(other)


def test_an_entry_of_a_later_state_is_not_in_an_earlier_one():
    first = Entries({"alice": b"1"})
    second = first.extended("bob", b"2")
    assert "bob" not in first
    with pytest.raises(KeyError):
        first["bob"]
    assert second["bob"] == b"2"


def test_the_same_step_taken_twice_shares_what_it_holds():
    first = Entries({"alice": b"1"})
    assert first.extended("bob", b"2")._log is first.extended("bob", b"2")._log is first._log
    assert first.extended("carol", b"3")._log is not first._log


def test_they_begin_as_a_copy_of_a_dictionary():
    plain = {"alice": b"1"}
    entries = Entries(plain)
    plain["bob"] = b"2"
    assert dict(entries) == {"alice": b"1"}
    assert Entries(entries) == entries
    assert entries != 3
    assert repr(entries) == "Entries({'alice': b'1'})"
