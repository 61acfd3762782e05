# Written by `run_ladder.py torch --write`, which replaces it: rename it to keep your changes.
"""Train the model of ppo.py with PyTorch alone: `eager`."""

import argparse
import copy
import sys
from pathlib import Path

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parent / "../../../../../examples/torch"))
import ppo as user  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=user.EPOCHS, help="in all, resumed ones too")
parser.add_argument("--checkpoint", type=Path, help="resume from this file, and save to it")
parser.add_argument("--verify", action="store_true", help="only compare with the usual loop")
asked = parser.parse_args()
user.EPOCHS = asked.epochs if asked.epochs > 0 else parser.error("--epochs: give 1 or more")
torch.manual_seed(0)
device = torch.device("cuda")
data = user.data()
data = [tree_map(lambda part: part[row], data) for row in range(len(data[0]))]
steps = len(data) // user.BATCH_SIZE  # per epoch, without the last part batch
model = user.model().to(device)
optimizer = user.optimizer(model.parameters())
resumes = asked.checkpoint and asked.checkpoint.exists() and not asked.verify
begin, states = torch.load(asked.checkpoint, map_location=device) if resumes else (0, [])
scheduler = user.scheduler(optimizer)
for _ in range(begin * steps): optimizer.step(), scheduler.step()  # of --epochs as they are now
if resumes: states[1]["param_groups"] = optimizer.state_dict()["param_groups"]  # with its rates
for part, state in zip([model, optimizer], states): part.load_state_dict(state)
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
        step(*tree_map(lambda part: part.to(device), batch))
        scheduler.step()
    return {"loss": sums.item() / len(rows)}

sums = torch.zeros(())
if asked.verify:  # train 64 steps by the usual loop, too; both must come to the same parameters
    first, vector = order[:64], torch.nn.utils.parameters_to_vector
    start, usual = vector(model.parameters()), [copy.deepcopy(model), copy.deepcopy(model)]
    torch.nn.utils.vector_to_parameters(start * (1 + 2**-23), usual[1].parameters())  # a rounding
    fast_loss = train(first)["loss"]
    for plain in usual:
        plain_loss, own = 0, user.optimizer(plain.parameters())
        scheduler = user.scheduler(own)
        for batch in DataLoader(data, batch_sampler=first.tolist()):
            inputs, targets = tree_map(lambda part: part.to(device), batch)
            own.zero_grad()
            loss = user.loss(plain(inputs), targets)
            loss.backward()
            user.after_backward(plain)
            own.step()
            scheduler.step()
            plain_loss += loss.item() / len(first)
    loss, ends = abs(fast_loss / plain_loss - 1), [vector(m.parameters()) for m in (model, *usual)]
    way, noise = ((end - ends[1]).norm() / (ends[1] - start).norm() for end in ends[::2])
    print(f"loss differs by {loss:.1e}, parameters by {way:.1e} (a rounding: {noise:.1e})")
    raise SystemExit(0 if loss < 0.001 and way < max(0.01, 4 * noise) else "more than rounding")
try:
    for epoch in range(begin, asked.epochs):
        report = train(order[epoch * steps : (epoch + 1) * steps])
        print(f"epoch {epoch + 1}:", ", ".join(f"{key} {mean:.4f}" for key, mean in report.items()))
        if asked.checkpoint:
            torch.save((epoch + 1, [model.state_dict(), optimizer.state_dict()]), asked.checkpoint)
except KeyboardInterrupt:
    raise SystemExit(f"interrupted; {asked.checkpoint or 'no checkpoint'} keeps the epochs before")
