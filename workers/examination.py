"""What is wrong with a stack, running or not: what leaked, and in plain words what it lacks to do its work."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from app.domain.leak import Leak, confirmed
from app.domain.money import usd
from app.domain.placement import Host
from app.errors import PromigenceError
from app.flow import admit, cloud_leaks, leaks
from app.ids import new_id
from app.ports import HostPorts
from app.ports.leaks import Traces
from infra import wiring, wiring_access
from infra.settings import Settings, load
from infra.stack.process import carrying
from infra.stack.records import MARK, Identity, Places, read_identity
from infra.wiring import Control
from workers.stack import status
from workers.stack.standing import SAY_SO, gone_back
from workers.stack.supervise import places_of
from workers.watch import Deaf

# Between the two looks that tell what lies about from what is being worked on.
PAUSE_S = 1.0
CLOCKS_APART_S = 2.0
NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `remedy` says what would mend it; `mended` that it was done. `usd_per_month` is what it
    costs the cloud account while it is there.
    """

    kind: str
    name: str
    detail: str
    remedy: str
    age_seconds: float | None = None
    mended: bool = False
    usd_per_month: float | None = None


@dataclass(slots=True)
class Report:
    """Findings, and notes on what is as it should be but good to know."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong, or all that was is mended."""
        return all(finding.mended for finding in self.findings)

    def found(self, kind: str, name: str, detail: str, remedy: str) -> None:
        self.findings.append(Finding(kind, name, detail, remedy))


def examine(directory: Path, *, fix: bool) -> Report:
    """Look at everything, and with `fix` mend what can be mended. Changes nothing without it."""
    report, settings = Report(), load(directory)
    places = places_of(directory)
    identity = read_identity(places)
    _look_at_parts(report, places, identity)
    _look_at_disk(report, settings)
    with ExitStack() as opened:
        control = _opened_control(report, settings, opened)
        works = "worker" in settings.parts
        host = _opened_host(report, settings, opened) if works else None
        if control is None:
            _tell_unknown(report, settings, host)
            return report
        _look_at_course(report, settings)
        _look_at_hosts(report, control)
        _look_at_clock(report, control)
        _look_at_queue(report, control, settings)
        _look_for_leaks(report, control, fix=fix)
        _look_in_account(report, control, fix=fix)
        _look_at_doors(report, control, settings, fix=fix)
        if host is not None:
            _look_on_host(report, control, host, _traces(settings, identity), fix=fix)
    return report


def _look_at_parts(report: Report, places: Places, identity: Identity | None) -> None:
    if identity is None:
        report.notes.append("the stack is not running: its rows are read directly")
        return
    for part in status.status(places.directory):
        if not part.ready:
            restart = "`promigence-server down`, then `up`"
            report.found("part_not_ready", part.name, part.detail, restart)
    if identity.supervisor is None or not identity.supervisor.alive():
        for process in carrying(f"{MARK}={identity.stack_id}"):
            report.found(
                "stack_process",
                str(process.pid),
                "of a stack whose supervisor is gone",
                "`promigence-server down` ends it",
            )


def _look_at_disk(report: Report, settings: Settings) -> None:
    free_gib = shutil.disk_usage(settings.dir).free / (1 << 30)
    if free_gib < settings.disk_reserve_gib:
        report.found(
            "disk_nearly_full",
            str(settings.dir),
            f"{free_gib:.1f} GiB are free, less than disk_reserve_gib ({settings.disk_reserve_gib})",
            "make room: the host takes no forks, and what runs stops at a full disk",
        )


def _opened_control(report: Report, settings: Settings, opened: ExitStack) -> Control | None:
    """Ports of which the rows answer; None where they cannot be read."""
    try:
        control = opened.enter_context(wiring.control(settings))
        control.ports.hosts.list()
    except PromigenceError as away:
        report.found(away.code, "database", away.message, "start it, or mend `database_url`")
        return None
    return control


def _opened_host(report: Report, settings: Settings, opened: ExitStack) -> HostPorts | None:
    """The host as it can be without a worker; None where no machine could run here."""
    try:
        host = opened.enter_context(wiring.host(settings, new_id("claim"), Deaf()))
    except PromigenceError as error:
        report.found(error.code, settings.host_id, error.message, "mend what it says")
        return None
    missing = host.machines.fingerprint().missing
    report.notes += [f"missing here: {each}" for each in missing]
    return host


def _tell_unknown(report: Report, settings: Settings, host: HostPorts | None) -> None:
    """Without rows nothing is called a leak; what is here is counted."""
    report.notes.append("the rows cannot be read: what is in use cannot be told from a leak")
    if host is not None:
        live, known = len(host.machines.live()), len(host.machines.known())
        bundles = len(host.bundles.known())
        report.notes.append(f"in {settings.dir}: {known} machines ({live} live), {bundles} bundles")


def _look_at_course(report: Report, settings: Settings) -> None:
    shown = gone_back(settings)
    if shown is not None:
        report.found("database_went_back", "database", shown, SAY_SO)


def _look_at_hosts(report: Report, control: Control) -> None:
    hosts = control.ports.hosts.list()
    for host in hosts:
        if host.quarantine is not None:
            report.found(
                "host_in_quarantine",
                host.host_id,
                host.quarantine.reason,
                "mend the host; it comes back by its self-test, or `promigence-server hosts release`",
            )
        if host.alive and host.disk_nearly_full:
            report.found(
                "host_disk_nearly_full",
                host.host_id,
                host.unready or "its disk is nearly full",
                "make room on its disk; it takes forks again by itself then",
            )
    if not any(host.alive for host in hosts):
        _tell_who_waits(report, control, hosts)


def _tell_who_waits(report: Report, control: Control, hosts: tuple[Host, ...]) -> None:
    """No worker is no fault while nothing waits for one."""
    held = sum(len(control.ports.attempts.held_by(host.host_id)) for host in hosts)
    waiting = len(control.ports.hosts.waiting(1000))
    waiting += sum(count for _, _, count in control.ports.hosts.placed())
    if held or waiting:
        detail = f"{held} machines and {waiting} queued forks wait for one"
        report.found("no_worker", "worker", detail, "`promigence-server up`")


def _look_at_clock(report: Report, control: Control) -> None:
    apart_s = abs(control.rows.now_ns() - time.time_ns()) / NS
    if apart_s > CLOCKS_APART_S:
        report.found(
            "clocks_apart",
            "clock",
            f"this host's wall clock is {apart_s:.0f} s from the database's",
            "set this host's clock: guests are given it",
        )


def _look_at_queue(report: Report, control: Control, settings: Settings) -> None:
    """A broker of the operator's own; one of the stack's is asked among its parts."""
    if settings.redis_url is None:
        return
    try:
        control.queue.found()
    except PromigenceError as away:
        report.found(away.code, "queue", away.message, "start it, or mend `redis_url`")


def _look_for_leaks(report: Report, control: Control, *, fix: bool) -> None:
    ports, rows, queue, uploads = control.ports, control.rows, control.queue, control.uploads
    mend = partial(leaks.mend_in_deployment, ports, rows, queue, uploads=uploads)
    report.findings += _findings(partial(leaks.in_deployment, rows, queue), mend, fix=fix)
    _look_in(report, "blobs", partial(leaks.of_blobs, ports, rows, uploads), mend, fix=fix)


def _look_in_account(report: Report, control: Control, *, fix: bool) -> None:
    """Volumes and snapshots that nobody owns, each with what it costs, and what all of them do."""
    look = partial(cloud_leaks.in_account, control.ports, control.rows)
    mend = partial(cloud_leaks.mend_in_account, control.ports, control.rows)
    found = _look_in(report, "account", look, mend, fix=fix)
    owed = sum(each.usd_per_month or 0.0 for each in found if not each.mended)
    if owed:
        report.notes.append(
            f"what nobody owns in the cloud account costs {owed:.2f} USD a month ({owed / 30:.2f} a day)"
        )


def _look_at_doors(report: Report, control: Control, settings: Settings, *, fix: bool) -> None:
    """Hosts that could log in and are gone; of those that never said anything the billing worker knows since when."""
    with wiring_access.access(settings) as access:
        if access is None:
            return
        asked = (control.ports, access, wiring.fleet(settings), admit.Memory())
        look, mend = partial(admit.strangers, *asked), partial(admit.mend, *asked)
        _look_in(report, "doors", look, mend, fix=fix)


def _look_in(
    report: Report,
    where: str,
    look: Callable[[], frozenset[Leak]],
    mend: Callable[[Leak], bool],
    *,
    fix: bool,
) -> list[Finding]:
    """Findings of a place that may not answer, which is then a finding itself."""
    try:
        found = list(_findings(look, mend, fix=fix))
    except PromigenceError as away:
        report.found(away.code, where, away.message, "mend what it says")
        return []
    report.findings += found
    return found


def _look_on_host(
    report: Report, control: Control, host: HostPorts, traces: Traces, *, fix: bool
) -> None:
    look = partial(leaks.on_host, control.ports, host, traces)
    report.findings += _findings(look, partial(leaks.mend_on_host, host, traces), fix=fix)


def _traces(settings: Settings, identity: Identity | None) -> Traces:
    ours = () if identity is None else carrying(f"{MARK}={identity.stack_id}")
    return wiring.traces(settings, [process.pid for process in ours])


def _findings(
    look: Callable[[], frozenset[Leak]], mend: Callable[[Leak], bool], *, fix: bool
) -> Iterator[Finding]:
    before = look()
    if not before:
        return
    time.sleep(PAUSE_S)
    for leak in confirmed(before, look()):
        finding = Finding(
            leak.kind.value,
            leak.name,
            leak.detail,
            f"it would be {leak.remedy}",
            None if leak.age_ns is None else round(leak.age_ns / NS, 1),
            usd_per_month=None if leak.micros_per_month is None else usd(leak.micros_per_month),
        )
        yield _mended(finding, leak, mend) if fix else finding


def _mended(finding: Finding, leak: Leak, mend: Callable[[Leak], bool]) -> Finding:
    try:
        return replace(finding, mended=mend(leak))
    except PromigenceError as error:
        return replace(finding, detail=f"{finding.detail} ({error.message})".strip())
