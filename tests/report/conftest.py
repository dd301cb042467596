"""Parsed pages of reports."""

import json
import re
from html.parser import HTMLParser

import pytest


class Page(HTMLParser):
    """Elements, the text outside scripts and styles, and the data of the script."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.text, self.open = [], "", []
        self.feed(page)
        self.close()
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
        self.data = json.loads(found[1])

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("meta", "img", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="session")
def part_of():
    """The section or article of a page that has this id."""

    def part(page, name):
        kind, content = re.search(rf'<(\w+)[^>]* id="{name}"(.*)', page, re.DOTALL).groups()
        return content.partition(f"</{kind}>")[0]

    return part


@pytest.fixture(scope="session")
def parsed():
    """A function that reads a page."""
    return Page
