"""The contract of every loss of the library; a new loss adds a subclass."""

import ast
import inspect

import numpy as np
from scipy.special import kl_div
from tests.solve.loss_contract import LossContract

from conenmf.solve import loss as interface
from conenmf.solve.losses import FROBENIUS, LOSSES, POISSON, get_loss
from conenmf.solve.losses.beta_divergence import ITAKURA_SAITO


class TestFrobenius(LossContract):
    loss = FROBENIUS

    @staticmethod
    def divergence(v, x):
        return (v - x) ** 2


class TestPoisson(LossContract):
    loss = POISSON

    @staticmethod
    def divergence(v, x):
        return kl_div(v, x)


class TestItakuraSaito(LossContract):
    loss = ITAKURA_SAITO

    @staticmethod
    def divergence(v, x):
        return v / x - np.log(v / x) - 1


class OfBeta(LossContract):
    """The contract of a beta divergence other than the named ones."""

    @property
    def degree(self):
        return self.loss.beta

    @classmethod
    def divergence(cls, v, x):
        beta = cls.loss.beta
        powers = v**beta + (beta - 1) * x**beta - beta * v * x ** (beta - 1)
        return powers / (beta * (beta - 1))


class TestBelowOne(OfBeta):
    loss = get_loss(0.5)


class TestBetweenOneAndTwo(OfBeta):
    loss = get_loss(1.5)


class TestAboveTwo(OfBeta):
    loss = get_loss(3)


def names_in(kind):
    """Return the public names that the body of a class defines, in order."""
    tree = ast.parse(inspect.getsource(kind)).body[0]
    names = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.AnnAssign) and node.target.id not in DATA:
            names.append(node.target.id)
    return [name for name in names if not name.startswith("_")]


# What an objective holds of its problem and its data; every objective sets it in the same way.
DATA = {"loss", "V", "spectrum", "dtype", "penalties", "n_fixed", "unit", "total"}
DATA |= {"groups", "codes"}


def test_the_interface_does_not_grow():
    """What a loss has to write or inherit; `support` came with groups of samples."""
    kinds = interface.Loss, interface.Objective, interface.Bounds
    assert sum(len(names_in(kind)) for kind in kinds) <= 43


def test_every_loss_has_a_contract():
    tested = {one.loss.name for one in LossContract.__subclasses__() if hasattr(one, "loss")}
    assert tested == set(LOSSES)
