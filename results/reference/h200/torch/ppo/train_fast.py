# Written by `run_ladder.py torch --write`, which replaces it: rename it to keep your changes.
"""Train the model of ppo.py with PyTorch alone: `step-graph-without-no-item`."""

import argparse
import copy
import sys
from pathlib import Path

import torch
from torch.utils._pytree import tree_map

sys.path.insert(0, str(Path(__file__).resolve().parent / "../../../../../examples/torch"))
import ppo as user  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=user.EPOCHS, help="in all, resumed ones too")
parser.add_argument("--checkpoint", type=Path, help="resume from this file, and save to it")
parser.add_argument("--verify", action="store_true", help="only compare with the usual loop")
asked = parser.parse_args()
user.EPOCHS = asked.epochs if asked.epochs > 0 else parser.error("--epochs: give 1 or more")
torch.cuda.set_stream(torch.cuda.Stream())  # the default stream cannot be captured
torch.manual_seed(0)
device = torch.device("cuda")
data = tree_map(lambda part: part.to(device), user.data())
steps = len(data[0]) // user.BATCH_SIZE  # per epoch, without the last part batch
model = user.model().to(device)
optimizer = user.optimizer(model.parameters())
scheduler, table = user.scheduler(optimizer), []
for _ in range(asked.epochs * steps):  # ahead of time, since a graph cannot call the scheduler
    table.append([group["lr"] for group in optimizer.param_groups])
    optimizer.step(), scheduler.step()  # changes no parameter, since there are no gradients
table = torch.tensor(table, device=device)
resumes = asked.checkpoint and asked.checkpoint.exists() and not asked.verify
begin, states = torch.load(asked.checkpoint, map_location=device) if resumes else (0, [])
for part, state in zip([model, optimizer], states): part.load_state_dict(state)
now = table[:1].clone()  # what the optimizer reads; each step copies its row of the table there
for group, rate in zip(optimizer.param_groups, now[0]):
    group.update(lr=rate, fused=True, capturable=True)
orders = [torch.randperm(len(data[0]))[: steps * user.BATCH_SIZE] for _ in range(asked.epochs)]
order = torch.cat(orders).view(-1, user.BATCH_SIZE).to(device)  # the rows of each step

def forward(inputs, targets):
    return user.loss(model(inputs), targets)

def step():  # a replay runs no Python, so a counter on the GPU chooses the batch
    torch.index_select(table, 0, done, out=now)
    batch = order.index_select(0, done)[0]
    inputs, targets = tree_map(lambda part: part.index_select(0, batch), data)
    optimizer.zero_grad()
    loss = forward(inputs, targets)
    loss.backward()
    user.after_backward(model)
    optimizer.step()
    sums.add_(loss.detach())
    done.add_(1)

def train(rows):  # a batch each; returns the means of the loss
    sums.zero_()
    for number in range(len(rows)):
        if not graphs and number == 3:  # the optimizer has its state
            graphs.append(torch.cuda.CUDAGraph())  # recording runs nothing
            with torch.cuda.graph(graphs[0], stream=torch.cuda.current_stream()): step()
        graphs[0].replay() if graphs else step()
        sums.tolist()  # the host waits for the step
    return {"loss": sums.item() / len(rows)}

done = torch.full((1,), begin * steps, device=device)  # steps so far
graphs, sums = [], torch.zeros((), device=device)
if asked.verify:  # train 64 steps by the usual loop, too; both must come to the same parameters
    first, vector = order[:64], torch.nn.utils.parameters_to_vector
    start, usual = vector(model.parameters()), [copy.deepcopy(model), copy.deepcopy(model)]
    torch.nn.utils.vector_to_parameters(start * (1 + 2**-23), usual[1].parameters())  # a rounding
    fast_loss = train(first)["loss"]
    for plain in usual:
        plain_loss, own = 0, user.optimizer(plain.parameters())
        scheduler = user.scheduler(own)
        for batch in first:
            inputs, targets = tree_map(lambda part: part[batch], data)
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
