"""The metrics of one process. `docs/metrics.md` says what each means, and a test holds it to that list.

What stands in the rows is read from the database when somebody asks, at most once a second. What happens is counted
where it is committed, by the process that commits it, and starts from 0 with the process, as counters do.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.domain.census import Census, HostStanding
from app.domain.event import Event, EventKind
from app.domain.fork import ForkState, Outcome
from app.domain.leak import LeakKind
from app.domain.measure import Step
from app.domain.money import usd
from app.domain.scaling import Plan
from app.domain.spot import Announcement
from app.errors import Unavailable

FRESH_S = 1.0
SECOND_NS = 1e9
# Under KVM a restore takes a tenth of a second and a command's start a hundredth; by emulation ten times that.
_QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LONG = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 1800, 3600, 7200)
_HISTOGRAMS = {
    Step.RESTORE: ("restore_seconds", "A machine restored from its bundle.", _QUICK),
    Step.READY: ("ready_seconds", "From the claim of a machine to its hand-over.", _QUICK),
    Step.EXEC_START: ("exec_start_seconds", "A command started in its guest.", _QUICK),
    Step.EXEC: ("exec_seconds", "The time of commands in their guests.", _LONG),
    Step.LATE: (
        "lease_lateness_seconds",
        "How long after its lease a machine was gone that the lease ended.",
        (0, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5),
    ),
    Step.BILLING_TICK: ("billing_tick_seconds", "One turn of the billing worker.", _QUICK),
}
# What each kind of process measures: a histogram that stays empty for ever says nothing.
_MEASURED = {
    "worker": (Step.RESTORE, Step.READY, Step.EXEC_START, Step.EXEC, Step.LATE),
    "billing": (Step.BILLING_TICK,),
}

_PLANNED = {
    "billing": (
        ("wanted_slots", "Forks that run or wait and could be placed, and warm targets."),
        ("wanted_hosts", "Hosts that are wanted, within the fleet's bounds."),
        ("present_hosts", "Hosts with a heartbeat."),
        ("hopeless_forks", "Forks that neither a host that is there nor a further one could take."),
        ("silent_instances", "Instances of the fleet that should have registered long ago."),
    )
}

# Half of all lines would say when this process began.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """`Measures`, and what else a process counts. `component` names it: api, worker, billing."""

    def __init__(self, component: str) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        build = {"component": component, "version": _version(), "python": platform.python_version()}
        Info("promigence_build", "What runs here.", registry=self._registry).info(build)
        self._took = {
            step: self._histogram(*_HISTOGRAMS[step]) for step in _MEASURED.get(component, ())
        }
        self._outcomes = self._counter("fork_outcomes", "Forks that ended.", "outcome")
        self._failures = self._counter(
            "environment_failures", "Machines that their environment failed.", "kind", "phase"
        )
        self._replaced = self._counter("forks_replaced", "Forks that got another machine.")
        self._leaks = self._counter("leaks_found", "What nobody owned, found by a reaper.", "kind")
        self._leaked_usd = (
            Gauge(
                "promigence_leaked_usd_per_month",
                "What leaks of the cloud account cost that are still there.",
                registry=self._registry,
            )
            if component == "billing"
            else None
        )
        self._announced = self._counter(
            "instance_notices", "What the cloud announced of this host's instance.", "kind"
        )
        self._planned = {
            name: Gauge(f"promigence_{name}", says, registry=self._registry)
            for name, says in _PLANNED.get(component, ())
        }
        for announcement in Announcement:
            self._announced.labels(announcement.value)
        for outcome in Outcome:
            self._outcomes.labels(outcome.value)
        for kind in LeakKind:
            self._leaks.labels(kind.value)

    def took(self, step: Step, duration_ns: int) -> None:
        """`Measures.took`. What this kind of process does not measure is forgotten."""
        if step in self._took:
            self._took[step].observe(max(0, duration_ns) / SECOND_NS)

    def heard(self, events: Sequence[Event]) -> None:
        """Count what a transaction told, once it is committed."""
        for event in events:
            if event.kind is EventKind.FORK_ENDED:
                self._outcomes.labels(str(event.data.get("outcome"))).inc()
            elif event.kind is EventKind.ATTEMPT_FAILED:
                self._failures.labels(str(event.reason), _phase_of(event)).inc()
            elif event.kind is EventKind.REPLACED:
                self._replaced.inc()

    def leaked(self, kind: LeakKind) -> None:
        """A reaper found a leak."""
        self._leaks.labels(kind.value).inc()

    def announced(self, kind: Announcement) -> None:
        """The cloud announced something of this host's instance."""
        self._announced.labels(kind.value).inc()

    def owed(self, micros_per_month: int) -> None:
        """The leaks that are still there cost that much. Only the billing worker looks at the account."""
        if self._leaked_usd is not None:
            self._leaked_usd.set(usd(micros_per_month))

    def planned(self, plan: Plan) -> None:
        """What the billing worker found is wanted."""
        for name, value in (
            ("wanted_slots", plan.wanted_slots),
            ("wanted_hosts", plan.wanted_hosts),
            ("present_hosts", plan.present_hosts),
            ("hopeless_forks", sum(count for _, count in plan.hopeless)),
            ("silent_instances", len(plan.silent)),
        ):
            self._planned[name].set(value)

    def watch_rows(self, take: Callable[[], Census]) -> None:
        """Show what stands in the rows too: for one kind of process, or sums over processes count it twice."""
        self._registry.register(_Rows(take))

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)

    def _histogram(self, name: str, says: str, bounds: tuple[float, ...]) -> Histogram:
        return Histogram(f"promigence_{name}", says, buckets=bounds, registry=self._registry)

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(f"promigence_{name}", says, labels, registry=self._registry)


class _Rows(Collector):
    """The rows as gauges. With the database away only `promigence_database_up` is said, and it is 0."""

    def __init__(self, take: Callable[[], Census]) -> None:
        self._take = take
        self._lock = threading.Lock()
        self._taken_at = float("-inf")
        self._census: Census | None = None

    def describe(self) -> list[Metric]:
        """Nothing is read when it is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """What stands now, or stood a second ago."""
        census = self._fresh()
        up = GaugeMetricFamily("promigence_database_up", "Whether the rows could be read.")
        up.add_metric([], float(census is not None))
        yield up
        if census is not None:
            yield from _gauges(census)

    def _fresh(self) -> Census | None:
        with self._lock:
            if time.monotonic() - self._taken_at > FRESH_S:
                try:
                    self._census = self._take()
                except Unavailable:
                    self._census = None
                self._taken_at = time.monotonic()
            return self._census


def _gauges(census: Census) -> Iterator[Metric]:
    live = [state for state in ForkState if state is not ForkState.ENDED]
    forks = GaugeMetricFamily("promigence_forks", "Live forks by state.", labels=["state"])
    for state in live:
        forks.add_metric([state.value], census.forks.get(state, 0))
    hosts = GaugeMetricFamily("promigence_hosts", "Hosts by standing.", labels=["state"])
    for standing in HostStanding:
        hosts.add_metric([standing.value], census.hosts.get(standing, 0))
    yield from (forks, hosts)
    for name, says, value in (
        ("runs_active", "Runs that are not final.", census.runs),
        ("machines", "Machines whose end is not booked.", census.machines),
        ("slots", "Forks that all hosts hold at most.", census.slots),
        ("slots_free", "Free slots of hosts that take forks.", census.free_slots),
        (
            "unplaced_fork_age_seconds",
            "How long the oldest fork without a host has waited.",
            census.unplaced_age_ns / SECOND_NS,
        ),
        (
            "queued_exec_age_seconds",
            "How long the oldest command that no worker has taken has waited.",
            census.queued_exec_age_ns / SECOND_NS,
        ),
    ):
        yield GaugeMetricFamily(f"promigence_{name}", says, value=value)


def _phase_of(event: Event) -> str:
    failed = event.data.get("failure")
    return str(failed.get("phase")) if isinstance(failed, dict) else ""


def _version() -> str:
    try:
        return metadata.version("promigence-server")
    except metadata.PackageNotFoundError:
        return "unknown"
