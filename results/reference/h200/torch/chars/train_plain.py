# Written by `run_ladder.py torch --write`, which replaces it: rename it to keep your changes.
"""Train the model of chars.py with PyTorch alone: `eager`."""

import argparse
import copy
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parent / "../../../../../examples/torch"))
import chars as user  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=user.EPOCHS)
parser.add_argument("--checkpoint", type=Path, help="resume from this file, and save to it")
parser.add_argument("--verify", action="store_true", help="only compare with the usual loop")
asked = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda")
data = TensorDataset(*user.data())
steps = len(data) // user.BATCH_SIZE  # per epoch, without the last part batch
model = user.model().to(device)
optimizer = user.optimizer(model.parameters())
scheduler = user.scheduler(optimizer)
resumes = asked.checkpoint and asked.checkpoint.exists() and not asked.verify
begin, states = torch.load(asked.checkpoint, map_location=device) if resumes else (0, [])
for part, state in zip([model, optimizer, scheduler], states):
    part.load_state_dict(state)
orders = [torch.randperm(len(data))[: steps * user.BATCH_SIZE] for _ in range(asked.epochs)]
order = torch.cat(orders).view(-1, user.BATCH_SIZE)  # the rows of each step


def forward(inputs, targets):
    return user.loss(model(inputs), targets)


def step(inputs, targets):  # trains on a batch, and adds its loss to the sums
    optimizer.zero_grad()
    loss = forward(inputs, targets)
    loss.backward()
    user.after_backward(model)
    optimizer.step()
    sums.add_(loss.item())


def train(rows):  # a batch each; returns the means of the loss
    sums.zero_()
    for batch in DataLoader(data, batch_sampler=rows.tolist()):
        step(*(part.to(device) for part in batch))
        scheduler.step()
    return {"loss": sums.item() / len(rows)}


sums = torch.zeros(())
if asked.verify:  # train 64 steps by the usual loop, too; both must come to the same parameters
    model.eval()  # without dropout, whose masks would differ
    first, vector = order[:64], torch.nn.utils.parameters_to_vector
    plain, start = copy.deepcopy(model), vector(model.parameters())
    fast_loss, plain_loss, own = train(first)["loss"], 0, user.optimizer(plain.parameters())
    scheduler = user.scheduler(own)
    for inputs, targets in DataLoader(data, batch_sampler=first.tolist()):
        own.zero_grad()
        loss = user.loss(plain(inputs.to(device)), targets.to(device))
        loss.backward()
        user.after_backward(plain)
        own.step()
        scheduler.step()
        plain_loss += loss.item() / len(first)
    of_loss, end = abs(fast_loss / plain_loss - 1), vector(plain.parameters())
    of_way = (vector(model.parameters()) - end).norm() / (end - start).norm()
    print(f"loss differs by {of_loss:.1e}, parameters by {of_way:.1e} of their way")
    raise SystemExit(0 if of_loss < 0.001 and of_way < 0.01 else "rounding does not explain this")
for epoch in range(begin, asked.epochs):
    report = train(order[epoch * steps : (epoch + 1) * steps])
    print(f"epoch {epoch + 1}:", ", ".join(f"{name} {mean:.4f}" for name, mean in report.items()))
    if asked.checkpoint:
        states = [model.state_dict(), optimizer.state_dict(), scheduler.state_dict()]
        torch.save((epoch + 1, states), asked.checkpoint)
