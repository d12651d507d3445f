from toolwire.core.bounded_dict import BoundedDict


def test_a_table_is_emptied_when_it_is_full() -> None:
    table = BoundedDict[str, int](2)
    table["a"], table["b"] = 1, 2
    assert table == {"a": 1, "b": 2}
    table["c"] = 3
    assert table == {"c": 3}
    assert (table.get("a"), table["c"]) == (None, 3)
