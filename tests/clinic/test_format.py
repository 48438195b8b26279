"""The page of the format is written from where the fields are declared."""

from scripts.write_steps_format import PAGE, page


def test_the_page_has_the_fields():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python scripts/write_steps_format.py"
