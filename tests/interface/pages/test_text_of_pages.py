"""Numbers and names as pages write them."""

import pytest

from surgery.interface.pages import page_text


@pytest.mark.parametrize(
    ("write", "value", "shown"),
    [
        (page_text.integer, 1234567, "1,234,567"),
        (page_text.integer, -3, "\u22123"),
        (page_text.integer, None, "\u2013"),
        (page_text.signed, 12, "+12"),
        (page_text.signed, -12, "\u221212"),
        (page_text.amount, 5_670_000, "5.67 M"),
        (page_text.amount, 999, "999"),
        (page_text.amount, "768*batch", "768 × batch"),
        (page_text.amount, "1025171456*batch", "1.03 G × batch"),
        (page_text.amount, "55296*batch**2*dim_12345 + 24", "55,296 × batch² × dim_12345 + 24"),
        (page_text.size, "4100*batch", "4,100 × batch B"),
        (page_text.size, 2_531_363, "2.53 MB"),
        (page_text.size, 12, "12 B"),
        (page_text.seconds, 0, "0 ms"),
        (page_text.seconds, 0.00082, "0.82 ms"),
        (page_text.seconds, 0.000082, "82 \u00b5s"),
        (page_text.seconds, 12.44, "12.4 s"),
        (page_text.seconds, 200.2, "3 min 20 s"),
        (page_text.scientific, 1.27e-7, "1.3e\u221207"),
        (page_text.scientific, 0.0, "0"),
        (page_text.scientific, "inf", "inf"),
        (page_text.plain_number, -0.0201422591, "\u22120.0201422591"),
        (page_text.plain_number, True, "True"),
    ],
)
def test_numbers(write, value, shown):
    # Numbers stay on the line of their units.
    assert write(value).replace("\u00a0", " ") == shown


def test_relative_changes():
    def change(before, after):
        return page_text.change(before, after).replace("\u00a0", " ")

    assert change(1302, 344) == "\u221274 %"
    assert change(100, 101) == "+1.0 %"
    assert change(1_000_000, 999_999) == ">\u22120.1 %"
    assert change(0, 5) == change(5, 5) == change(None, 5) == ""


def test_long_names_keep_their_ends():
    shown = page_text.clip("a" * 5000 + "z" * 5000)
    assert shown.startswith("aaaa") and "zzzz (10,000 characters)" in shown and len(shown) < 300
    assert page_text.clip("short\u202e") == "short\\u202e"


def test_counts_have_their_nouns():
    assert [page_text.plural(count, "site") for count in (0, 1, 2)] == ["0 sites", "1 site", "2 sites"]
