"""Cases of the one way out of a machine: a policy server that forks may reach, and that fails as networks do."""

from __future__ import annotations

from drills.matrix.case import SERVICED, Case, breaks, fails, passes, says

FETCH = "wget -q -O - http://{}/"
ASK = FETCH.format("$POLICY")


def _lost(name: str, shows: str, command: str, what: str, *, quick: bool = True) -> Case:
    return Case(
        name=name,
        shows=shows,
        command=command,
        terms=SERVICED,
        expect=breaks("egress_lost", "exec", says("egress", what), task_may_have_caused=False),
        quick=quick,
    )


CASES = (
    _lost(
        "egress-refused",
        "nobody listens at an allowed target",
        f"{FETCH.format('$POLICY_REFUSED')} || exit 5",
        "connection_refused",
    ),
    _lost(
        "egress-reset",
        "an allowed target resets the connection",
        f"{FETCH.format('$POLICY_RESET')} || exit 5",
        "reset",
    ),
    _lost(
        "egress-gone",
        "an allowed target answers once and goes away while the command runs",
        f"{FETCH.format('$POLICY_GONE')} || exit 1; sleep 2; {FETCH.format('$POLICY_GONE')} || exit 5",
        "connection_refused",
    ),
    Case(
        name="egress-failed-and-passed",
        shows="the same fault, in a command that passes all the same",
        command=f"{FETCH.format('$POLICY_REFUSED')} || {ASK}",
        terms=SERVICED,
        expect=passes(output="yes"),
        quick=True,
    ),
    Case(
        name="egress-sound",
        shows="an allowed target answers, and the command fails by itself",
        command=f"{ASK}; exit 5",
        terms=SERVICED,
        expect=fails(5, output="yes"),
        quick=True,
    ),
    Case(
        name="egress-not-allowed",
        shows="the command asks for what its run does not allow, and fails",
        command=f"{FETCH.format('192.0.2.1:80')} || exit 5",
        terms=SERVICED,
        expect=fails(5),
        quick=True,
    ),
)
