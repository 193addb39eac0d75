"""What a person sees while something happens: one line per phase, a live bar while the clock runs.

Everything here goes to standard error; results (table, sentence, path) go to standard output. Without a terminal
the same phases are plain lines, each written once when it begins and once when it ends.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

# Redrawing costs CPU on the core the client may share, so the bar moves slowly while it measures.
_REDRAWS_PER_S = 4
_MEASURING_REDRAWS_PER_S = 1
_PLAIN_LINE_EVERY_S = 10.0


class _LenientConsole(Console):
    """Falls silent where its reader has gone (`… | head`); rich itself would end the program, and the run with it."""

    def on_broken_pipe(self) -> None:
        """rich: a write found nobody at the other end."""
        self.quiet = True


class Screen:
    """The one place that writes to the terminal."""

    def __init__(self, results: Console | None = None, status: Console | None = None) -> None:
        self._results = results or _LenientConsole(file=sys.stdout, soft_wrap=False, highlight=False)
        self._status = status or _LenientConsole(file=sys.stderr, highlight=False)

    @property
    def live(self) -> bool:
        """Whether a person is watching."""
        return self._status.is_terminal

    def say(self, line: str) -> None:
        """One plain line of status."""
        self._status.print(escape(line), soft_wrap=True)

    def heading(self, line: str) -> None:
        """A line that begins a run."""
        self._status.print(f"[bold]{escape(line)}[/bold]", soft_wrap=True)

    def warn(self, line: str) -> None:
        """A line that a person should not overlook."""
        self._status.print(f"[yellow]Warning:[/yellow] {escape(line)}", soft_wrap=True)

    def error(self, error: Exception | str) -> None:
        """What went wrong and what to do."""
        self._status.print(f"[red]Error:[/red] {escape(str(error))}", soft_wrap=True)

    def result(self, renderable: RenderableType) -> None:
        """A piece of the result, on standard output."""
        if isinstance(renderable, str):
            self._results.print(escape(renderable), soft_wrap=True)
        else:
            self._results.print(renderable)

    @contextmanager
    def phase(self, title: str) -> Iterator[Callable[[str], None]]:
        """A step that takes a while. Yields a function that shows a detail beside the title."""
        started = time.monotonic()
        if not self.live:
            self.say(f"  {title} …")
            yield self._plain_details()
            self.say(f"  {title}: done in {time.monotonic() - started:.1f} s")
            return
        progress = Progress(
            TextColumn(" "),
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=self._status,
            transient=True,
            refresh_per_second=_REDRAWS_PER_S,
        )
        with progress:
            task = progress.add_task(escape(title))
            yield lambda detail: progress.update(task, description=escape(f"{title}: {detail}"))
        self.say(f"  ✓ {title} ({time.monotonic() - started:.1f} s)")

    def _plain_details(self) -> Callable[[str], None]:
        """Says a detail now and then, so that a log of something that takes minutes shows that it goes on."""
        last_line = time.monotonic()

        def show(detail: str) -> None:
            nonlocal last_line
            if time.monotonic() - last_line >= _PLAIN_LINE_EVERY_S:
                last_line = time.monotonic()
                self.say(f"    {detail}")

        return show

    @contextmanager
    def measuring(self, title: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
        """The bar while the clock runs. Yields a function of (finished requests, live figures as text)."""
        started = time.monotonic()
        with self._live_bar(title, total) if self.live else self._plain_lines(title, total) as show:
            yield show
        mark = "✓ " if self.live else ""
        self.say(f"  {mark}{title} ({time.monotonic() - started:.1f} s)")

    @contextmanager
    def _live_bar(self, title: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
        progress = Progress(
            TextColumn("    {task.description}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            auto_refresh=False,
        )
        task = progress.add_task(escape(title), total=total, figures="")
        live = Live(progress, console=self._status, transient=True, auto_refresh=False)
        last_drawn = 0.0

        def show(finished: int, figures: str) -> None:
            nonlocal last_drawn
            now = time.monotonic()
            if now - last_drawn >= 1 / _MEASURING_REDRAWS_PER_S:
                last_drawn = now
                progress.update(task, completed=finished, figures=escape(figures))
                live.refresh()

        with live:
            yield show

    @contextmanager
    def _plain_lines(self, title: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
        last_line = time.monotonic()
        self.say(f"  {title} …")

        def show(finished: int, figures: str) -> None:
            nonlocal last_line
            if time.monotonic() - last_line >= _PLAIN_LINE_EVERY_S:
                last_line = time.monotonic()
                self.say(f"    {finished}{f' of {total}' if total else ''} finished, {figures}")

        yield show
