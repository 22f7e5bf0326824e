"""What worker processes are made of: gates, turns, paces, the ringer; and the queue's settings."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from app.errors import BadRequest, Unavailable
from infra.fakes.bells import FakeBells
from infra.queue import CeleryBells, celery, host_queue, redis_url, worker_queue
from workers.apart import Apart
from workers.gate import Gate
from workers.liveness import Liveness
from workers.pace import stamp, stamped, steadily
from workers.turns import Turns
from workers.watch import Ringer

LIMIT_S = 10


def thread(act: object, *args: object) -> threading.Thread:
    assert callable(act)
    made = threading.Thread(target=act, args=args, daemon=True)
    made.start()
    return made


class Door:
    """An act that is entered, and left when it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.let_go = threading.Event()
        self.inside = 0
        self.most = 0
        self._lock = threading.Lock()

    def act(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.entered.release()
        assert self.let_go.wait(LIMIT_S)
        with self._lock:
            self.inside -= 1


def test_a_gate_lets_in_its_width_and_turns_away_who_finds_no_place_to_wait() -> None:
    gate, door = Gate(2), Door()
    threads = [thread(gate.run, door.act) for _ in range(2)]
    for _ in threads:
        assert door.entered.acquire(timeout=LIMIT_S)
    threads += [thread(gate.run, door.act) for _ in range(2)]
    answers = []
    # Those two take the places to wait, in their own time; after that everyone is turned away.
    while True:
        refused = thread(lambda: answers.append(gate.run(lambda: None)))
        refused.join(timeout=0.05)
        if not refused.is_alive():
            break
        threads.append(refused)

    door.let_go.set()
    for each in threads:
        each.join(LIMIT_S)

    assert False in answers
    assert door.most == 2


def test_a_gate_is_idle_when_nobody_is_inside_or_waits() -> None:
    gate, door = Gate(1), Door()
    idle = [gate.is_idle]
    inside = thread(gate.run, door.act)
    assert door.entered.acquire(timeout=LIMIT_S)
    idle.append(gate.is_idle)
    door.let_go.set()
    inside.join(LIMIT_S)
    assert [*idle, gate.is_idle] == [True, False, True]


def test_a_gate_is_open_again_after_an_error() -> None:
    gate = Gate(1)

    with pytest.raises(ZeroDivisionError):
        gate.run(lambda: 1 // 0)

    assert gate.is_idle
    assert gate.run(lambda: None)


def test_work_apart_is_done_once_for_each_thing_at_a_time() -> None:
    apart, door = Apart(), Door()
    assert apart.begin("build_1", door.act)
    assert door.entered.acquire(timeout=LIMIT_S)
    assert not apart.begin("build_1", door.act)
    assert apart.begin("build_2", door.act)
    assert door.entered.acquire(timeout=LIMIT_S)
    idle = [apart.is_idle]
    door.let_go.set()
    for name in ("build_1", "build_2"):
        for each in threading.enumerate():
            if each.name == name:
                each.join(LIMIT_S)
    assert [*idle, apart.is_idle] == [False, True]
    assert door.most == 2


def test_turns_of_one_key_follow_each_other_and_repeat_nothing() -> None:
    turns, done = Turns(), []

    def first() -> None:
        for _ in range(3):
            turns.take("machine", "collect", lambda: done.append("collect"))
        turns.take("machine", "stop", lambda: done.append("stop"))
        done.append("first")

    turns.take("machine", "collect", first)

    assert done == ["first", "collect", "stop"]


def test_another_key_does_not_wait() -> None:
    turns, done = Turns(), []

    turns.take("a", "collect", lambda: turns.take("b", "collect", lambda: done.append("b")))

    assert done == ["b"]


def test_a_turn_that_failed_frees_its_key() -> None:
    turns, done = Turns(), []

    with pytest.raises(ZeroDivisionError):
        turns.take("machine", "collect", lambda: 1 // 0)
    turns.take("machine", "collect", lambda: done.append("again"))

    assert done == ["again"]


def test_a_pace_outlives_errors_and_stops_when_told() -> None:
    stop = threading.Event()
    turns: list[int] = []

    def act() -> None:
        turns.append(len(turns))
        if len(turns) == 1:
            raise Unavailable("database_away", "gone")
        if len(turns) == 2:
            raise ZeroDivisionError
        if len(turns) == 4:
            stop.set()

    steadily("test", act, stop, period_s=0.0)

    assert turns == [0, 1, 2, 3]


class Hours(threading.Event):
    """A clock on which waiting and acting take their time, and nothing else does."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        self.now_s += timeout
        return self.is_set()


def test_turns_that_take_too_long_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Hours()
    monkeypatch.setattr("workers.pace.time.monotonic", lambda: stop.now_s)
    began: list[float] = []
    takes = iter((0.25, 7.5, 0.25, 0.25))

    def act() -> None:
        began.append(stop.now_s)
        stop.now_s += next(takes)
        if len(began) == 4:
            stop.set()

    steadily("test", act, stop)

    # The one of 7.5 s costs the seven that it ran over; the pace begins anew after it.
    assert began == [0.0, 1.0, 8.5, 9.5]
    assert min(stop.waits) >= 0


def test_a_stamp_says_who_and_when(tmp_path: Path) -> None:
    path = tmp_path / "tick"

    assert stamped(path) is None
    stamp(path, 123)
    noted = stamped(path)
    path.write_text("torn")

    assert noted is not None
    assert noted[1] == 123
    assert stamped(path) is None


class Queue:
    """A queue whose worker may be deaf, and which may be away."""

    def __init__(self) -> None:
        self.answers = True
        self.away = False
        self.denies = False
        self.echoes: list[str] = []

    def ping(self) -> None:
        if self.denies:
            raise Unavailable("queue_denied", "no such user")
        if self.away:
            raise Unavailable("queue_away", "gone")

    def echo(self, queue: str, token: str) -> None:
        self.echoes.append(queue)

    def echoed(self, queue: str, token: str, timeout_s: float) -> bool:
        return self.answers and not self.away


def test_a_worker_is_deaf_only_while_its_queue_answers_and_it_does_not() -> None:
    queue, now = Queue(), [0.0]
    liveness = Liveness(queue, "worker.claim_1", clock_s=lambda: now[0])

    def deaf_at(second: float) -> float:
        now[0] = second
        return liveness.deaf_for_s()

    assert deaf_at(10) == 0
    queue.answers = False
    assert [deaf_at(20), deaf_at(130)] == [10, 120]
    queue.away = True
    assert deaf_at(140) == 0
    queue.away = False
    assert deaf_at(150) == 10
    queue.answers = True
    assert deaf_at(160) == 0
    assert set(queue.echoes) == {"worker.claim_1"}


def test_a_worker_whose_login_is_gone_is_as_good_as_deaf() -> None:
    queue, now = Queue(), [0.0]
    liveness = Liveness(queue, "worker.claim_1", clock_s=lambda: now[0])
    queue.answers, queue.denies = False, True
    now[0] = 125.0

    assert liveness.deaf_for_s() == 125


def test_what_guests_say_is_rung_by_machine() -> None:
    bells = FakeBells()
    ringer = Ringer(bells, "claim_1")

    ringer.ended("att_1", "exec_1")
    ringer.lost("att_2")
    ringer.close()

    assert [bell.ids for bell in bells.waiting] == [("claim_1", "att_1"), ("claim_1", "att_2")]


@pytest.mark.parametrize("settled", [True, False])
def test_an_end_at_once_is_rung_only_if_its_starter_did_not_see_to_it(settled: bool) -> None:
    bells = FakeBells()
    ringer = Ringer(bells, "claim_1")

    def start() -> bool:
        ringer.ended("att_1", "exec_1")
        ringer.ended("att_2", "exec_2")
        return settled

    ringer.starting("exec_1", start)
    ringer.close()

    rung = [bell.ids[1] for bell in bells.waiting]
    assert rung == (["att_2"] if settled else ["att_2", "att_1"])


def test_an_end_heard_while_its_starter_failed_is_rung() -> None:
    bells = FakeBells()
    ringer = Ringer(bells, "claim_1")

    def start() -> bool:
        ringer.ended("att_1", "exec_1")
        raise Unavailable("database_away", "the end could not be written")

    with pytest.raises(Unavailable):
        ringer.starting("exec_1", start)
    ringer.ended("att_1", "exec_1")
    ringer.close()

    assert [bell.ids for bell in bells.waiting] == [("claim_1", "att_1")] * 2


def test_the_queue_takes_data_only_and_ties_no_work_to_a_message() -> None:
    conf = celery("redis://nowhere/0").conf

    assert conf.accept_content == ["json"]
    assert conf.task_acks_late is False
    assert conf.task_ignore_result is True
    assert conf.worker_prefetch_multiplier == 1
    assert conf.broker_connection_max_retries is None


@pytest.mark.parametrize(
    ("broker", "same"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis+socket:///run/p/redis.sock", "unix:///run/p/redis.sock"),
        ("redis+socket:///run/p/redis.sock?virtual_host=2", "unix:///run/p/redis.sock?db=2"),
        (
            "rediss://u:p%40w@h:1/0",
            "rediss://u:p%40w@h:1/0?ssl_cert_reqs=required&ssl_check_hostname=True",
        ),
    ],
)
def test_one_redis_two_names(broker: str, same: str) -> None:
    assert redis_url(broker) == same


@pytest.mark.parametrize("said", ["ssl_cert_reqs=none", "ssl_check_hostname=false", "ssl_x=1"])
def test_no_url_leaves_a_certificate_unchecked(said: str) -> None:
    for read in (redis_url, celery):
        with pytest.raises(BadRequest, match="always checked"):
            read(f"rediss://h:1/0?{said}")


def test_celery_checks_a_certificate_as_we_do() -> None:
    conf = celery("rediss://u:p@h:1/0?ssl_ca_certs=/a/ca.pem").conf

    assert conf.broker_url == "rediss://u:p@h:1/0"
    assert conf.broker_use_ssl == {
        "ssl_cert_reqs": "required",
        "ssl_check_hostname": True,
        "ssl_ca_certs": "/a/ca.pem",
    }


def test_bells_are_silent_when_the_queue_is_away(tmp_path: Path) -> None:
    bells = CeleryBells(f"redis+socket://{tmp_path}/no.sock", at_once=2)
    try:
        bells.place()
        bells.fork("h", 5)
        bells.woken("exec_1")
        assert not bells.echoed(host_queue("h"), "token", 0.1)
        with pytest.raises(Unavailable):
            bells.ping()
    finally:
        bells.close()


def test_a_host_and_a_worker_have_queues_of_their_own() -> None:
    assert len({host_queue("a"), host_queue("b"), worker_queue("a"), worker_queue("b")}) == 4
