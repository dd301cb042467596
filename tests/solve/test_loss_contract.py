"""The contract of every loss of the library; a new loss adds a subclass."""

import numpy as np
from scipy.special import kl_div

from conenmf.solve.losses import FROBENIUS, LOSSES, POISSON
from conenmf.solve.losses.itakura_saito import ITAKURA_SAITO

from .loss_contract import LossContract


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


def test_every_loss_has_a_contract():
    tested = {one.loss.name for one in LossContract.__subclasses__()}
    assert tested == set(LOSSES)
