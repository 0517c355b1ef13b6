"""The door to training: a model, batches and an objective in; better weights out, and events on the way."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn

from softlook.train.adapters import foundation
from softlook.train.average import Average
from softlook.train.batches import Batches, as_batches, seed_of
from softlook.train.device import choose_device, choose_precision
from softlook.train.distributed import in_company
from softlook.train.events import Listener
from softlook.train.folder import RunFolder
from softlook.train.learner import Learner
from softlook.train.optimizer import make_optimizer
from softlook.train.progress import Progress
from softlook.train.run import Evaluate, Run
from softlook.train.settings import Optim, Training, lasting
from softlook.train.sharding import part
from softlook.train.snapshots import Snapshots
from softlook.train.step import Objective, Stepper
from softlook.train.stop import Stop


def fit(
    model: nn.Module,
    batches: Batches | Iterable[Any],
    objective: Objective,
    *,
    evaluate: Evaluate | None = None,
    training: Training | None = None,
    optim: Optim | None = None,
    folder: Path | None = None,
    tokenizer: Path | None = None,
    listeners: Sequence[Listener] = (),
) -> Progress:
    """Train a model and leave it with its best weights, which `folder` holds too.

    Called again with the same arguments it goes on from the newest checkpoint, as if it had never stopped, bit for bit.

    >>> from softlook.train import Loss
    >>> def objective(model, batch):
    ...     return Loss((model(batch) - 3 * batch).square().sum(), len(batch))
    >>> model = nn.Linear(1, 1)
    >>> _ = fit(model, [torch.randn(8, 1)], objective, training=Training(steps=300), optim=Optim(lr=0.1, warmup=10))
    >>> round(model(torch.ones(1)).item(), 1)
    3.0
    """
    training, optim = training or Training(), optim or Optim()
    device = choose_device(training.device)
    with ExitStack() as stack:
        is_parted = training.parallel == "fsdp"
        world = stack.enter_context(in_company(device, is_parted=is_parted, silence=training.silence))
        if folder is not None:
            stack.enter_context(RunFolder(folder).mine())
        torch.manual_seed(training.seed if world.first else seed_of(training.seed, world.rank))
        kind = choose_precision(training.precision, device)
        model.to(device)
        settings = lasting(training, optim) | foundation(model)
        if world.is_parted:
            part(model, device, world.size)
        optimizer = make_optimizer(model, optim)
        stepper = Stepper(model, objective, optimizer, clip=optim.clip, kind=kind, world=world)
        average = Average(model, training.average) if training.average else None
        run = Run(
            training,
            optim,
            learner=Learner(model, optimizer, stepper.scaler, average, device, world),
            stepper=stepper,
            batches=as_batches(batches),
            snapshots=Snapshots(folder, keep=training.keep, settings=settings) if folder else None,
            stop=stack.enter_context(Stop(echo=1.0 if world.size > 1 else 0.0).listening()),
            evaluate=evaluate,
            tokenizer=tokenizer,
            listeners=listeners if world.first else (),
        )
        return run.go()
