"""What errors say: short messages that can be copied, and limits in words."""

import copy
import pickle
from fractions import Fraction

import numpy as np

from conenmf import arguments
from conenmf.errors import Message, Option, OptionError
from conenmf.text import shown


def test_what_a_message_shows_is_short_and_can_be_copied():
    values = [
        10**500,
        "x" * 10**3,
        np.ones((9, 9)),
        [[0.5] * 10**4] * 9,
        print,
        {1: np.ones(3)},
    ]
    for value in values:
        problem = OptionError(Message(Option("K", value), ", expected less"))
        assert len(str(problem)) < 150
        for again in (copy.copy(problem), pickle.loads(pickle.dumps(problem))):
            assert (again.args, again.args[0].parts) == (problem.args, problem.args[0].parts)
    assert shown("a\x1b[31m\n") == r"'a\x1b[31m\n'"


def test_limits_in_words(refuses):
    limits = "tol=nan, expected a number above 0 and below 1"
    refuses(OptionError, limits, arguments.number, "tol", float("nan"), above=0, below=1)
    assert arguments.number("max_time", Fraction(1, 2), at_least=0) == 0.5
