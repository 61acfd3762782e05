# Written by `run_ladder.py torch --write`, which replaces it: rename it to keep your changes.
"""Train the model of tabular.py with PyTorch alone: `eager`."""

import argparse
import copy
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parent / "../../../../../examples/torch"))
import tabular as user  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=user.EPOCHS, help="in all, resumed ones too")
parser.add_argument("--checkpoint", type=Path, help="resume from this file, and save to it")
parser.add_argument("--verify", action="store_true", help="only compare with the usual loop")
asked = parser.parse_args()
user.EPOCHS = asked.epochs if asked.epochs > 0 else parser.error("--epochs: give 1 or more")
torch.manual_seed(0)
device = torch.device("cuda")
data = TensorDataset(*user.data())
held_out = tuple(part.to(device) for part in user.validation())
steps = len(data) // user.BATCH_SIZE  # per epoch, without the last part batch
model = user.model().to(device)
optimizer = user.optimizer(model.parameters())
resumes = asked.checkpoint and asked.checkpoint.exists() and not asked.verify
begin, states = torch.load(asked.checkpoint, map_location=device) if resumes else (0, [])
for part, state in zip([model, optimizer], states): part.load_state_dict(state)
orders = [torch.randperm(len(data))[: steps * user.BATCH_SIZE] for _ in range(asked.epochs)]
order = torch.cat(orders).view(-1, user.BATCH_SIZE)  # the rows of each step

def forward(inputs, targets):
    output = model(inputs)
    return user.loss(output, targets), user.metrics(output, targets)

def step(inputs, targets):  # trains on a batch, and adds its loss and metrics to the sums
    optimizer.zero_grad()
    loss, metrics = forward(inputs, targets)
    loss.backward()
    optimizer.step()
    sums.add_(torch.tensor([loss.item(), *(value.item() for value in metrics.values())]))

def train(rows):  # a batch each; returns the means of loss and metrics
    sums.zero_()
    for batch in DataLoader(data, batch_sampler=rows.tolist()):
        step(*(part.to(device) for part in batch))
    return dict(zip(("loss", "accuracy"), (sums / len(rows)).tolist()))

sums = torch.zeros(2)
if asked.verify:  # train 64 steps by the usual loop, too; both must come to the same parameters
    model.eval()  # without dropout, whose masks would differ
    first, vector = order[:64], torch.nn.utils.parameters_to_vector
    start, usual = vector(model.parameters()), [copy.deepcopy(model), copy.deepcopy(model)]
    torch.nn.utils.vector_to_parameters(start * (1 + 2**-23), usual[1].parameters())  # a rounding
    fast_loss = train(first)["loss"]
    for plain in usual:
        plain_loss, own = 0, user.optimizer(plain.parameters())
        for inputs, targets in DataLoader(data, batch_sampler=first.tolist()):
            own.zero_grad()
            loss = user.loss(plain(inputs.to(device)), targets.to(device))
            loss.backward()
            own.step()
            plain_loss += loss.item() / len(first)
    loss, ends = abs(fast_loss / plain_loss - 1), [vector(m.parameters()) for m in (model, *usual)]
    way, noise = ((end - ends[1]).norm() / (ends[1] - start).norm() for end in ends[::2])
    print(f"loss differs by {loss:.1e}, parameters by {way:.1e} (a rounding: {noise:.1e})")
    raise SystemExit(0 if loss < 0.001 and way < max(0.01, 4 * noise) else "more than rounding")
try:
    for epoch in range(begin, asked.epochs):
        report, means = train(order[epoch * steps : (epoch + 1) * steps]), 0
        model.eval()
        with torch.no_grad():
            for inputs, targets in zip(*(part.split(user.BATCH_SIZE) for part in held_out)):
                loss, metrics = forward(inputs, targets)
                means += torch.stack([loss, *metrics.values()]) * len(inputs) / len(held_out[0])
        model.train()
        report.update(zip(("validation loss", "validation accuracy"), means.tolist()))
        print(f"epoch {epoch + 1}:", ", ".join(f"{key} {mean:.4f}" for key, mean in report.items()))
        if asked.checkpoint:
            torch.save((epoch + 1, [model.state_dict(), optimizer.state_dict()]), asked.checkpoint)
except KeyboardInterrupt:
    raise SystemExit(f"interrupted; {asked.checkpoint or 'no checkpoint'} keeps the epochs before")
