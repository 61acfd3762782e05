"""The host monitor on made-up files of `/proc`, and on this host."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ladder.machine.host_monitor import HostMonitor
from ladder.records.run import HostState

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


def test_time_under_a_quota_is_read_from_every_control_group(host: Host) -> None:
    host.throttle(host.group, "throttled_usec 1500000")  # v2
    host.throttle(host.group / "above", "throttled_time 250000000")  # v1
    monitor = host.monitor()
    assert monitor.read()[0].throttled_s == 0
    host.throttle(host.group, "throttled_usec 2000000")
    host.throttle(host.group / "above", "throttled_time 500000000")
    assert monitor.read()[0].throttled_s == pytest.approx(0.75)
    host.throttle(host.group, "throttled_usec nonsense")
    assert monitor.read()[0].throttled_s == 0


def test_an_ended_thread_makes_no_negative_wait(host: Host) -> None:
    host.thread("2", 5.0)
    monitor = host.monitor()
    (host.tasks / "2" / "schedstat").unlink()
    host.thread("1", 0.5)
    assert monitor.read()[0].waited_s == 0


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
