"""What must hold of the input of `fit`, checked before anything is trained or written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.engine.batches import Instances
from apportion.errors import BagError, ConfigError
from apportion.nets.augment import augmented


def check_types(model: Any, config: Any, train: Any, valid: Any, test: Any) -> None:
    """Check that everything is what `fit` takes."""
    if not isinstance(config, TrainConfig):
        raise ConfigError(
            f"config is {config!r}.",
            'Pass TrainConfig(epochs=…), or TrainConfig.preset("paper") for a preset.',
        )
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"the model is {model!r}.", "Pass an nn.Module; apportion.nets.build.build makes one."
        )
    for name, bags in (("train", train), ("valid", valid), ("test", test)):
        if not isinstance(bags, Bags) and (bags is not None or name == "train"):
            raise BagError(
                f"{name} is of type {type(bags).__name__}, not Bags.",
                "Bags.from_rows makes them of rows and a bag id for each.",
            )


def check_input(
    model: nn.Module, config: TrainConfig, train: Bags, valid: Bags | None, test: Bags | None
) -> None:
    """Check that the parts go together."""
    for name, bags in (("validation", valid), ("test", test)):
        if bags is not None and bags.classes != train.classes:
            raise BagError(
                f"the {name} bags have the classes {bags.classes}, but the training bags "
                f"{train.classes}.",
                "Pass classes= to Bags, so that all have the same in the same order.",
            )
    if config.patience is not None and valid is None:
        raise ConfigError(
            f"patience is {config.patience}, but there are no validation bags to stop by.",
            "Pass valid=, or leave patience out.",
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise ConfigError(
            f"{type(model).__name__} has no parameters to train.",
            "Let requires_grad of some be True.",
        )


def check_batch(
    name: str, model: nn.Module, instances: Instances, augmentations: Sequence[str] = ()
) -> None:
    """See that two instances can be augmented, and that the model gives them a logit a class."""
    n_classes, rows = instances.bags.n_classes, instances.distinct[:2]
    (stored,) = instances.feed.batches(rows, [(0, len(rows))])
    x = augmented(stored, augmentations, torch.Generator(instances.device))
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            given = model(*x)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        took = ", ".join(f"{tuple(part.shape)} {str(part.dtype)[6:]}" for part in x)
        raise ConfigError(
            f"{type(model).__name__} cannot take {name} instances, a batch of {took}: {error}",
            "Let it take them as they are stored: apportion.nets.normalized.Normalized makes "
            "floating-point numbers of others.",
        ) from error
    finally:
        model.train(was_training)
    wanted = (len(rows), n_classes)
    if not isinstance(given, Tensor) or tuple(given.shape) != wanted:
        found = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else str(type(given))
        raise ConfigError(
            f"{type(model).__name__} gives {found} for {len(rows)} instances of {n_classes} "
            f"classes, not {wanted}.",
            f"Let it return {n_classes} logits for each instance, and nothing else.",
        )
