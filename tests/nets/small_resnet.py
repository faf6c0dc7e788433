"""A net of a few weights in the place of resnet18, for trainings of images that take no time."""

from torch import nn

from apportion.config import PRESETS, TrainConfig
from apportion.nets.build import NETS


def small_resnet(classes, channels, *, stem="imagenet", mirror=False):
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3 if stem == "cifar" else 7, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, classes),
    )


def few_epochs(n, setitem):
    """Pre-train for n epochs at most."""
    setitem(PRESETS, "pretrain", TrainConfig.preset("pretrain", epochs=n))


def instead_of_resnet(setitem):
    setitem(NETS, "resnet18", small_resnet)
