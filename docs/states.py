"""Draws docs/fork-states.md from the tables of app/domain/fork.py: `python -m docs.states`."""

from __future__ import annotations

from pathlib import Path

from app.domain.fork import MOVES, OUTCOMES

PAGE = Path(__file__).with_name("fork-states.md")
MARK = "<!-- drawn from app/domain/fork.py -->"


def drawing() -> str:
    """The diagram of moves and the table of reasons, as Markdown."""
    moves = [
        f"    {old.value} --> {new.value}" for old, news in MOVES.items() for new in sorted(news)
    ]
    reasons = [f"| `{reason.value}` | `{outcome.value}` |" for reason, outcome in OUTCOMES.items()]
    return "\n".join(
        (
            "```mermaid",
            "stateDiagram-v2",
            "    [*] --> queued",
            *moves,
            "    ended --> [*]",
            "```",
            "",
            "| reason | outcome |",
            "|---|---|",
            *reasons,
        )
    )


def main() -> None:
    """Rewrite what stands below the mark."""
    head = PAGE.read_text().partition(MARK)[0]
    PAGE.write_text(f"{head}{MARK}\n\n{drawing()}\n")


if __name__ == "__main__":
    main()
