# Written by `run_ladder.py torch --write`, which replaces it: rename it to keep your changes.
"""Train the model of mlp.py with PyTorch alone: `step-graph-without-fused-optimizer`."""

import argparse
import copy
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent / "../../../../../examples/torch"))
import mlp as user  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=user.EPOCHS)
parser.add_argument("--checkpoint", type=Path, help="resume from this file, and save to it")
parser.add_argument("--verify", action="store_true", help="only compare with the usual loop")
asked = parser.parse_args()
torch.cuda.set_stream(torch.cuda.Stream())  # the default stream cannot be captured
torch.manual_seed(0)
device = torch.device("cuda")
data = tuple(part.to(device) for part in user.data())
held_out = tuple(part.to(device) for part in user.validation())
steps = len(data[0]) // user.BATCH_SIZE  # per epoch, without the last part batch
model = user.model().to(device)
optimizer = user.optimizer(model.parameters())
resumes = asked.checkpoint and asked.checkpoint.exists() and not asked.verify
begin, states = torch.load(asked.checkpoint, map_location=device) if resumes else (0, [])
for part, state in zip([model, optimizer], states):
    part.load_state_dict(state)
orders = [torch.randperm(len(data[0]))[: steps * user.BATCH_SIZE] for _ in range(asked.epochs)]
order = torch.cat(orders).view(-1, user.BATCH_SIZE).to(device)  # the rows of each step


def forward(inputs, targets):
    output = model(inputs)
    return user.loss(output, targets), user.metrics(output, targets)


def step():  # a replay runs no Python, so a counter on the GPU chooses the batch
    batch = order.index_select(0, done)[0]
    inputs, targets = (part.index_select(0, batch) for part in data)
    optimizer.zero_grad()
    loss, metrics = forward(inputs, targets)
    loss.backward()
    optimizer.step()
    sums.add_(torch.stack([loss.detach(), *metrics.values()]))
    done.add_(1)


def train(rows):  # a batch each; returns the means of loss and metrics
    global graph
    sums.zero_()
    for number in range(len(rows)):
        if graph is None and number == 3:  # the optimizer has its state
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):  # runs nothing
                step()
        graph.replay() if graph else step()
    return dict(zip(("loss", "accuracy"), (sums / len(rows)).tolist()))


done = torch.full((1,), begin * steps, device=device)  # steps so far
graph, sums = None, torch.zeros(2, device=device)
if asked.verify:  # train 64 steps by the usual loop, too; both must come to the same parameters
    first, vector = order[:64], torch.nn.utils.parameters_to_vector
    plain, start = copy.deepcopy(model), vector(model.parameters())
    fast_loss, plain_loss, own = train(first)["loss"], 0, user.optimizer(plain.parameters())
    for batch in first:
        own.zero_grad()
        loss = user.loss(plain(data[0][batch]), data[1][batch])
        loss.backward()
        own.step()
        plain_loss += loss.item() / len(first)
    of_loss, end = abs(fast_loss / plain_loss - 1), vector(plain.parameters())
    of_way = (vector(model.parameters()) - end).norm() / (end - start).norm()
    print(f"loss differs by {of_loss:.1e}, parameters by {of_way:.1e} of their way")
    raise SystemExit(0 if of_loss < 0.001 and of_way < 0.01 else "rounding does not explain this")
for epoch in range(begin, asked.epochs):
    report, means = train(order[epoch * steps : (epoch + 1) * steps]), 0
    model.eval()
    with torch.no_grad():
        for inputs, targets in zip(*(part.split(user.BATCH_SIZE) for part in held_out)):
            loss, metrics = forward(inputs, targets)
            means += torch.stack([loss, *metrics.values()]) * len(inputs) / len(held_out[0])
    model.train()
    report.update(zip(("validation loss", "validation accuracy"), means.tolist()))
    print(f"epoch {epoch + 1}:", ", ".join(f"{name} {mean:.4f}" for name, mean in report.items()))
    if asked.checkpoint:
        torch.save((epoch + 1, [model.state_dict(), optimizer.state_dict()]), asked.checkpoint)
