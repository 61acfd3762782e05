"""The update of PPO, as CleanRL has it: tanh networks for policy and value, clipped gradients, a linear schedule.

`python ppo.py` trains it on the CPU. `python run_ladder.py torch ppo.py` says how fast the update could be, and with
which loop. Start from this file for reinforcement learning: let `data` return a rollout of your environment. The ladder
times the update on this rollout alone; it runs no environment.

The rollout is made up: observations and actions are noise, and good actions resemble their observation.
"""

import torch
from torch import Tensor, nn
from torch.distributions import Normal

BATCH_SIZE = 256
EPOCHS = 10  # passes over a rollout, for which the ladder chooses a loop
OBSERVED, ACTIONS, ROWS = 17, 6, 16_384
STEPS = EPOCHS * (ROWS // BATCH_SIZE)


class Agent(nn.Module):
    """A policy, whose spread does not depend on the observation, and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.value = network(ACTIONS), network(1)
        self.log_std = nn.Parameter(torch.zeros(1, ACTIONS))

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.policy(observation), self.log_std, self.value(observation).squeeze(-1)


def network(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(OBSERVED, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def model() -> nn.Module:
    """The agent, newly initialised; whoever calls this has set the seed, and moves it to the GPU."""
    return Agent()


def loss(output: tuple[Tensor, Tensor, Tensor], target: dict[str, Tensor]) -> Tensor:
    """PPO's loss of a batch, a scalar: the clipped policy, the value and the entropy."""
    mean, log_std, value = output
    policy = Normal(mean, log_std.exp().expand_as(mean), validate_args=False)  # a validation would make the host wait
    ratio = (policy.log_prob(target["action"]).sum(1) - target["log_prob"]).exp()
    advantage = target["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    gain = torch.min(advantage * ratio, advantage * ratio.clamp(0.8, 1.2)).mean()
    return 0.25 * (value - target["return"]).square().mean() - gain - 0.001 * policy.entropy().sum(1).mean()


def optimizer(params: object) -> torch.optim.Optimizer:
    return torch.optim.Adam(params, lr=3e-4, eps=1e-5)


def scheduler(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """Stepped once a step: the learning rate falls to a twentieth."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.05, 1 - step / STEPS))


def after_backward(model: nn.Module) -> None:
    """Runs between `loss.backward()` and the optimizer's step."""
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)


def data() -> tuple[Tensor, dict[str, Tensor]]:
    """A rollout: observations, and for each what was done and what came of it. Inputs and targets may be dicts."""
    noise = torch.Generator().manual_seed(0)
    observation = torch.randn(ROWS, OBSERVED, generator=noise)
    action = torch.randn(ROWS, ACTIONS, generator=noise)
    likeness = (observation[:, :ACTIONS] * action).sum(1)
    return (
        observation,
        {
            "action": action,
            "log_prob": Normal(0.0, 1.0).log_prob(action).sum(1),  # of the policy that acted
            "advantage": likeness + torch.randn(ROWS, generator=noise),
            "return": observation[:, :3].sum(1).tanh() + 0.1 * torch.randn(ROWS, generator=noise),
        },
    )


if __name__ == "__main__":  # a plain loop: the file also runs alone
    torch.manual_seed(0)
    (inputs, targets), agent = data(), model()
    learn = optimizer(agent.parameters())
    schedule = scheduler(learn)
    for epoch in range(2):
        for rows in torch.randperm(ROWS).split(BATCH_SIZE):
            learn.zero_grad()
            error = loss(agent(inputs[rows]), {name: part[rows] for name, part in targets.items()})
            error.backward()
            after_backward(agent)
            learn.step()
            schedule.step()
        print(f"epoch {epoch}: last loss {error.item():.4f}")
