"""What the machine does beside a timed run, and how much of it disturbs one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.machine.disturbance import with_disturbances
from ladder.machine.host_monitor import HostMonitor
from ladder.records.run import GpuState, HostState, Process

CALM_GPU, CALM_HOST = GpuState(1980, 45, 300.0, [], 0), HostState(0.0, 0.0, 0.0)


def process(*, round_: int = 0, run_s: float = 1.0, gpu: GpuState = CALM_GPU, host: HostState = CALM_HOST) -> Process:
    """A process with a warm-up and two runs, the last of them with the given states."""
    return Process(round_, 0.1, [run_s], [run_s, run_s], None, [CALM_GPU] * 2 + [gpu], None, [CALM_HOST] * 2 + [host])


def reasons(one: Process, *others: Process, on_gpu: bool = True) -> list[str]:
    return with_disturbances([one], others, on_gpu=on_gpu)[0].disturbed


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (replace(CALM_GPU, throttle_reasons=["power cap"]), "the GPU slowed itself down: power cap"),
        (replace(CALM_GPU, sm_mhz=1900), "the GPU's clock fell to 1900 of 1980 MHz"),
        (replace(CALM_GPU, other_processes=1), "another process computed on the GPU"),
        (HostState(0.5, 0.0), "its threads waited for a core for 0.5 s in 2 s (25%; the limit is 5%)"),
        (HostState(0.0, 0.5), "other virtual machines took 25% of the busy cores"),
        (HostState(0.0, 0.0, 0.5), "other processes kept 25% of the host's cores busy"),
    ],
)
def test_the_gpu_s_state_disturbs_only_stages_on_it_and_the_host_s_every_one(
    state: GpuState | HostState, reason: str
) -> None:
    disturbed = process(host=state) if isinstance(state, HostState) else process(gpu=state)
    assert reasons(disturbed) == [reason]
    assert reasons(disturbed, on_gpu=False) == [reason] * isinstance(state, HostState)


@pytest.mark.parametrize(
    ("host", "count", "run_s"),
    [
        (CALM_HOST, 0, 50.0),  # slow, and without a reason
        (HostState(0.099, 0.099, 0.199), 0, 1.0),  # of two runs of a second
        (HostState(0.101, 0.0, 0.0, idle_cores=0.9), 1, 1.0),
        (HostState(0.101, 0.0, 0.0, idle_cores=1.1), 0, 1.0),  # idle cores: it waited to be woken
        (HostState(0.0, 0.101, 0.0), 1, 1.0),
        (HostState(0.0, 0.5, 0.09, over_s=1.0, cores=64, own_s=1.0), 1, 1.0),  # in 7.26 s of all cores' work and loss
        (HostState(0.0, 0.3, 0.09, over_s=1.0, cores=64, own_s=1.0), 0, 1.0),
        (HostState(0.0, 0.0, 0.201), 1, 1.0),
        (HostState(0.101, 0.101, 0.201), 3, 1.0),
        (HostState(0.004, 0.0), 0, 0.001),  # a few milliseconds never count, even in a short run
        (HostState(0.006, 0.0), 1, 0.001),
    ],
)
def test_the_limits(host: HostState, count: int, run_s: float) -> None:
    assert len(reasons(process(run_s=run_s, host=host), process(round_=1))) == count


def test_conditions_during_warmups_do_not_count() -> None:
    slow, busy = replace(CALM_GPU, throttle_reasons=["heat"], other_processes=2), HostState(1.0, 1.0, 1.0)
    warm = replace(process(), gpu_states=[slow, CALM_GPU, CALM_GPU], host_states=[busy, CALM_HOST, CALM_HOST])
    assert reasons(warm) == []


def test_the_clock_is_compared_with_the_highest_of_the_stages_processes() -> None:
    low = replace(CALM_GPU, sm_mhz=1500)
    slow = replace(process(), gpu_states=[low] * 3)
    assert reasons(slow) == []  # as far as it can tell, a clock that the user set
    assert reasons(slow, process(round_=1)) == ["the GPU's clock fell to 1500 of 1980 MHz"]
    both = with_disturbances([slow, process(round_=1)], [], on_gpu=True)
    assert [bool(one.disturbed) for one in both] == [True, False]


def test_what_nvml_does_not_tell_hides_nothing_else() -> None:
    slow = replace(CALM_GPU, throttle_reasons=["power cap"])
    assert reasons(process(gpu=replace(slow, sm_mhz=None, temperature_c=None, power_w=None, other_processes=None))) == [
        "the GPU slowed itself down: power cap"
    ]
    blind = replace(CALM_GPU, sm_mhz=None, throttle_reasons=None)
    assert reasons(process(gpu=blind)) == []
    assert reasons(process(gpu=replace(blind, other_processes=1))) == ["another process computed on the GPU"]
    assert reasons(replace(process(), gpu_states=[], host_states=[])) == []


@pytest.mark.parametrize("idle_cores", [0.0, 62.0])
def test_a_quota_disturbs_even_if_cores_are_idle(idle_cores: float) -> None:
    held = HostState(1.0, 0.0, idle_cores=idle_cores, over_s=1.0, own_s=1.0, cores=64, throttled_s=1.0)
    assert reasons(process(host=held)) == ["a CPU quota held it back for 1 s in 1 s (100%; the limit is 5%)"]
    assert reasons(process(host=replace(held, throttled_s=0.04, waited_s=0.04))) == []


def test_a_pace_is_compared_with_those_of_as_many_cores() -> None:
    one, both = (replace(process(round_=cores), pace_s=cores / 10, pace_cores=cores) for cores in (1, 2))
    assert reasons(both, one, on_gpu=False) == []
    slow = replace(one, pace_s=0.2)
    assert reasons(slow, one, both, on_gpu=False) != []
    assert reasons(replace(process(), pace_s=0.2), one, on_gpu=False) == []  # an older record's is of all cores


TICK = os.sysconf("SC_CLK_TCK")


class Host:
    """Files as Linux writes them, in a folder of the test's, and a clock."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks, self.stat, self.group = folder / "task", folder / "stat", folder / "group"
        self.now_s = self.own_s = 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.now_s)
        monkeypatch.setattr("time.process_time", lambda: self.own_s)
        monkeypatch.setattr("os.cpu_count", lambda: 4)
        monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 2})
        self.thread("1", 0.0)
        self.write(0, 0, 0)

    def thread(self, name: str, waited_s: float) -> None:
        (self.tasks / name).mkdir(parents=True, exist_ok=True)
        (self.tasks / name / "schedstat").write_text(f"123 {int(waited_s * 1e9)} 7\n")

    def write(self, user_s: float, system_s: float, stolen_s: float, *idle_s: float) -> None:
        user, system, stolen = (int(seconds * TICK) for seconds in (user_s, system_s, stolen_s))
        idle, guest = 10**6 + int(self.now_s * TICK), user
        cores = "".join(f"cpu{core} 1 0 1 {int(seconds * TICK)} 0 0 0\n" for core, seconds in enumerate(idle_s))
        self.stat.write_text(f"cpu  {user} 0 {system} {idle} 55 0 0 {stolen} {guest} {guest}\n{cores}intr 5\n")

    def monitor(self) -> HostMonitor:
        return HostMonitor(self.tasks, self.stat, [self.group, self.group / "above"])

    def throttle(self, group: Path, told: str) -> None:
        group.mkdir(parents=True, exist_ok=True)
        (group / "cpu.stat").write_text(f"nr_periods 9\nnr_throttled 2\n{told}\n")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_a_reading_covers_the_time_since_the_last_one(host: Host) -> None:
    monitor = host.monitor()
    host.thread("1", 0.25)
    host.thread("2", 0.5)
    host.now_s, host.own_s = 10.0, 7.0
    host.write(user_s=9.0, system_s=2.0, stolen_s=1.5)
    assert monitor.read() == [
        HostState(0.75, 1.5, others=0.1, over_s=10.0, own_s=7.0, cores=4)
    ]  # 11 s, of which 7 were ours, of 40
    assert monitor.read()[0].waited_s == 0
    host.thread("2", 0.6)
    assert monitor.read()[0].waited_s == pytest.approx(0.1)


def test_this_processs_own_work_does_not_count_as_others(host: Host) -> None:
    monitor = host.monitor()
    host.now_s, host.own_s = 10.0, 40.1  # finer than ticks
    host.write(user_s=40.0, system_s=0.0, stolen_s=0.0)
    assert monitor.read()[0].others == 0.0


def test_idle_cores_are_counted_among_those_it_may_use(host: Host) -> None:
    host.write(0, 0, 0, 1.0, 1.0, 1.0)
    monitor = host.monitor()
    host.now_s = 10.0
    host.write(0, 0, 0, 6.0, 11.0, 8.0)
    assert monitor.read()[0].idle_cores == pytest.approx(1.2)  # the second core is not for this process


@pytest.mark.parametrize("broken", ["", "cpu  1 2 3", "cpu  a b c d e f g h i"])
def test_without_accounting_readings_are_empty(host: Host, broken: str) -> None:
    host.stat.write_text(broken)
    monitor = host.monitor()
    assert monitor.read() == []
    host.write(1, 1, 1)
    assert monitor.read() == []  # no earlier reading to subtract
    assert len(monitor.read()) == 1
    assert HostMonitor(host.tasks / "none", host.stat).read() == []


def test_this_hosts_own_accounting_is_read() -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this system has no /proc/self/schedstat")
    monitor = HostMonitor()
    time.sleep(0.3)  # the system counts in ticks of 10 ms, and may lag behind by some
    (state,) = monitor.read()
    assert state.waited_s >= 0
    assert state.stolen_s >= 0
    assert 0 <= state.others <= 1.5
