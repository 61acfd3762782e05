"""PyTorch without autograd: the textbook's gradient, a dozen operators a step.

`TorchTrainer` supplies the network, the batches on the device and the totals; this file supplies the epoch.
"""

from collections.abc import Callable

from stages import Problem, Split, Stage, TorchSetup, TorchTrainer, Trainer


def prepare(setup: TorchSetup) -> Callable[[bool], None]:
    import torch  # here, so that the stage is skipped, not refused, where there is no PyTorch

    layers, totals, batches = setup.layers, setup.totals, setup.resident_batches()
    rate, size = setup.problem.learning_rate, setup.problem.batch_size

    def run_epoch(due: bool) -> None:
        for images, labels in batches:
            inputs = [images]
            for weight, bias in layers[:-1]:
                inputs.append(torch.addmm(bias, inputs[-1], weight.T).relu_())
            logits = torch.addmm(layers[-1][1], inputs[-1], layers[-1][0].T)
            if due:
                totals.add(torch.nn.functional.cross_entropy(logits, labels), logits, labels)
            doutput = logits.softmax(1).sub_(torch.nn.functional.one_hot(labels, logits.shape[1])).div_(size)
            for (weight, bias), x in zip(reversed(layers), reversed(inputs), strict=True):
                dinput = (doutput @ weight).mul_(x > 0) if x is not images else None
                weight.addmm_(doutput.T, x, alpha=-rate)
                bias.sub_(doutput.sum(0), alpha=rate)
                doutput = dinput

    return run_epoch


def build(problem: Problem, train: Split) -> Trainer:
    return TorchTrainer(problem, train, prepare)


STAGE = Stage("by-hand", "PyTorch, gradient by hand", "reference", "float32", ("torch",), build)
