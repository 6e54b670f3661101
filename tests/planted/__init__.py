"""Small bugs, planted one at a time into a copy of the product, to see what catches each: `python -m tests.planted`."""
