"""`promigence-server`: the stack of a checkout, the processes that it consists of, and its API keys."""

from __future__ import annotations

import dataclasses
import json
import logging
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from app.errors import BadRequest, Conflict, PromigenceError
from infra.logs import configure
from infra.settings import SETTINGS_FILE, PartName, Settings, complaint, load
from workers.audit import audit
from workers.command import HERE, Dir, Json
from workers.credentials import credentials
from workers.doctor import doctor
from workers.drain import host
from workers.explain import explain
from workers.hosts import hosts
from workers.keys import keys
from workers.projects import projects
from workers.rates import rates
from workers.restored import restored
from workers.teardown import teardown
from workers.upgrade import upgrade
from workers.usage import usage

# Each command imports what it needs by itself: a stack starts five processes at once, often on two cores, and what
# serves the API is a second of processor time that the others need not spend.

FAILED, INTERRUPTED = 1, 130
# What a part that `up` did not start has to be told: of each line one.
STORES = (("database_url",), ("redis_url",))
QUEUE_TO_LOOK_AT = (("flower_redis_url", "redis_url"),)

log = logging.getLogger(__name__)

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
app.add_typer(keys, name="keys")
app.add_typer(projects, name="projects")
app.add_typer(host, name="host")
app.add_typer(hosts, name="hosts")
app.add_typer(rates, name="rates")
app.command()(usage)
app.command()(audit)
app.command()(credentials)
app.command()(doctor)
app.command()(explain)
app.command()(teardown)
app.command()(upgrade)
app.command()(restored)


def main() -> None:
    """The console script. Errors of ours are one line and exit code 1."""
    # `docker stop` and CI end a program by SIGTERM, a closed terminal by SIGHUP: `up` cleans up as after Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    configure("error")
    try:
        app()
    except PromigenceError as error:
        _fail(f"{error.code}: {error.message}", FAILED)
    except (ValidationError, SettingsError) as error:
        _fail(f"bad_settings: {complaint(error)}", FAILED)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)
    except Exception:  # whatever it was: its trace is a record like all others, without secrets
        log.exception("a command failed")
        raise SystemExit(FAILED) from None


@app.command()
def up(
    directory: Dir = HERE,
    parts: Annotated[
        str | None,
        typer.Option(help="which of api,worker,billing,flower belong here; all by default"),
    ] = None,
    machines: Annotated[str | None, typer.Option(help="real or fake")] = None,
    egress_allow: Annotated[
        list[str] | None, typer.Option(help="host:port that a run may ask to reach; repeatable")
    ] = None,
    host_slots: Annotated[int | None, typer.Option(min=1, help="forks at once, at most")] = None,
    foreground: Annotated[bool, typer.Option(help="Stay, and stop the stack on Ctrl-C.")] = False,
) -> None:
    """Start the stack and return when every part of it does its work."""
    from workers.stack import down as end
    from workers.stack import up as start

    allowed = None if egress_allow is None else tuple(egress_allow)
    names = None if parts is None else tuple(parts.split(","))
    settings = start.up(directory, start.Wanted(names, machines, allowed, host_slots), _say)
    if "api" in settings.parts:
        where = f"http://{settings.api_host}:{settings.api_port}"
        print(f"up: {where}  settings in {settings.dir / 'env'}")
    else:
        print(f"up: {', '.join(settings.parts)} of {settings.host_id}")
    if foreground:
        try:
            start.wait(directory)
        finally:
            end.down(directory, _say)


@app.command()
def down(
    directory: Dir = HERE,
    wipe: Annotated[bool, typer.Option(help="Remove database, snapshots and logs too.")] = False,
) -> None:
    """Stop the stack, whatever state it is in, and leave nothing of it running."""
    from workers.stack import down as end

    end.down(directory, _say, wipe=wipe)


@app.command()
def status(directory: Dir = HERE, as_json: Json = False) -> None:
    """The parts of the stack, each asked for a piece of its work now. Exit code 1 unless all are ready (not with
    --json, where the answer says it).
    """
    from workers.stack import status as seen

    found = seen.status(directory)
    if as_json:
        _print_json([dataclasses.asdict(part) for part in found])
        return
    for part in found:
        print(f"{part.name:12} {part.pid or '-':>8}  {part.detail or 'ready'}")
    if not found or not all(part.ready for part in found):
        raise typer.Exit(FAILED)


@app.command()
def probe(part: PartName, directory: Dir = HERE) -> None:
    """Ask one part for a piece of its work, whoever started it: for health checks. Exit code 1 says what it lacks."""
    from workers.probes import complaint_of

    lacks = complaint_of(load(directory), part)
    if lacks is not None:
        _fail(f"{part}: {lacks}", FAILED)


@app.command()
def machines(directory: Dir = HERE, as_json: Json = False) -> None:
    """The machines that live on this host, and how long each may go on."""
    from workers.stack import status as seen

    found = seen.machines(directory)
    if as_json:
        _print_json([dataclasses.asdict(machine) for machine in found])
        return
    for each in found:
        print(f"{each.fork_id}  {each.run_id}  {each.pid}  {each.lease_left_seconds:.0f} s left")


@app.command()
def logs(
    part: Annotated[str, typer.Argument(help="as `status` names it")] = "worker",
    directory: Dir = HERE,
    follow: Annotated[bool, typer.Option("--follow", "-f")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1)] = 100,
) -> None:
    """The last lines of a part's log."""
    path = directory / "logs" / f"{Path(part).name}.log"
    if not path.is_file():
        _fail(f"no log {path}", FAILED)
    tail = ["tail", f"--lines={lines}", *(["--follow=name"] if follow else []), str(path)]
    raise typer.Exit(subprocess.run(tail, check=False).returncode)


@app.command()
def migrate(directory: Dir = HERE) -> None:
    """Bring the database up to this release, which `up` and `serve` do by themselves, and take away what no release
    uses any more, unless somebody is there who may need it.
    """
    from infra import wiring
    from infra.store.migrate import known_revision

    settings = load(directory)
    wiring.migrate(settings)
    try:
        wiring.contract(settings)
    except Conflict as needed:
        _say(f"{needed.code}: {needed.message}")
    print(f"the schema is {known_revision()}")


@app.command()
def serve(directory: Dir = HERE) -> None:
    """The API."""
    from infra import serve as api
    from infra import wiring
    from workers.residence import resident

    settings = _process(directory, *STORES)
    wiring.migrate(settings)
    api.run(settings, lambda ports: resident(ports, "api"))


@app.command()
def worker(
    directory: Dir = HERE,
    pulse_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
    notify: Annotated[str, typer.Option(help="systemd's $NOTIFY_SOCKET, of its unit.")] = "",
) -> None:
    """The Celery worker of this host."""
    from infra import wiring
    from infra.stack import pulse
    from workers import host as worker_process

    mouth = None if pulse_fd is None else pulse.piped(pulse_fd)
    settings = _process(directory, *STORES)
    wiring.refuse_contracted(settings)
    worker_process.run(settings, pulse.notified(notify) if notify else mouth)


@app.command()
def billing(directory: Dir = HERE) -> None:
    """The billing worker: meters, leases, expiries, recovery; and where forks go."""
    from app.domain.fleet import Bounds
    from app.flow.retention import DAY_NS
    from infra import wiring, wiring_access
    from infra.epochs import CONTROL, EpochMemory
    from infra.stack.records import make_runtime
    from workers import billing as worker
    from workers.admitting import doors_kept
    from workers.fleet import scaled
    from workers.health import Watch, told
    from workers.placing import placing
    from workers.reaping import deployment_reaped
    from workers.residence import resident
    from workers.standing import ControlStanding

    settings = _process(directory, *STORES)
    wiring.refuse_contracted(settings)
    # Its tick is noted there, also where no stack was started around it.
    make_runtime(settings.sockets)
    stop = worker.until_told_to_stop()
    bounds = Bounds(settings.fleet_min, settings.fleet_max)
    with wiring.control(settings, "billing") as control, wiring_access.access(settings) as access:
        standing = ControlStanding(control.ports, EpochMemory(settings.dir, CONTROL))
        guarded, metrics = standing.guarded, control.metrics
        watch = Watch(control.ports.clock, settings.tick_file)
        planned = watch.planned(metrics.planned)
        with (
            wiring.scraped(settings, metrics, settings.billing_metrics_port),
            resident(control.ports, "billing"),
            placing(control.ports, control.bells, settings.broker_url, settings.host_id, guarded),
            scaled(control.ports, wiring.fleet(settings), bounds, planned, guarded),
            doors_kept(
                control.ports,
                access,
                wiring.fleet(settings),
                control.bells.alone,
                watch.leaked(metrics.leaked),
                guarded,
            ),
            deployment_reaped(
                control.ports,
                control.rows,
                control.queue,
                watch.leaked(metrics.leaked),
                control.uploads,
                watch.owed(metrics.owed),
                audit_kept_ns=settings.audit_days * DAY_NS,
                guarded=guarded,
            ),
            told(control.ports, control.census, watch),
        ):
            worker.run(control.ports, control.bells, settings.tick_file, stop, standing.look)


@app.command()
def flower(directory: Dir = HERE) -> None:
    """Flower, behind its password."""
    from workers import flower

    flower.run(_process(directory, *QUEUE_TO_LOOK_AT))


@app.command(hidden=True)
def supervise(directory: Dir = HERE) -> None:
    """What `up` leaves running: the parent of all parts."""
    from workers.stack import supervise

    settings = load(directory)
    configure(settings.log_level, settings.secret_values())
    supervise.keep(directory)


def _process(directory: Path, *needs: tuple[str, ...]) -> Settings:
    """One of the server's own processes begins: its settings, its logs, and the ordinary meaning of signals.

    Raises BadRequest(parts_apart) where it is no part of a stack that was started here and not told what it needs.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    settings = load(directory)
    configure(settings.log_level, settings.secret_values())
    if not (directory / SETTINGS_FILE).exists():
        _need(settings, needs)
    return settings


def _need(settings: Settings, needs: tuple[tuple[str, ...], ...]) -> None:
    """A part whose secrets did not come would begin a database or look at a queue of its own, and seem well."""
    missing = [
        " or ".join(f"PROMIGENCE_{name.upper()}" for name in names)
        for names in needs
        if all(getattr(settings, name) is None for name in names)
    ]
    if missing:
        raise BadRequest(
            "parts_apart",
            f"no stack was started in {settings.dir}, so database and queue are elsewhere: set {', '.join(missing)}, or"
            f" put them into files in {settings.secrets_dir}",
        )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_json(what: object) -> None:
    print(json.dumps(what, indent=2))


def _fail(message: str, code: int) -> None:
    _say(f"promigence-server: {message}")
    raise SystemExit(code)


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
