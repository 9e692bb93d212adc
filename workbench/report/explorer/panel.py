"""The explorer: where everything stands, and what a move of a control sets going (WB-UI-03).

In: recordings and a configuration. Out: a widget for a notebook. A move of a control is answered twice: at once from
sums where they are proved to equal the engine (WB-TUNE-05), and by an exact replay behind it, with progress and a way
to stop it. No rules here: which there are is `controls.py`, what they mean `choices.py`, what is computed `work.py`, how it looks `views.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from workbench.config import RunConfig
from workbench.errors import ConfigError, WorkbenchError, nearest_name
from workbench.evaluate.net import without_shortening
from workbench.recordings import load_recordings
from workbench.recordings.types import Conversation
from workbench.replay.planner import ThresholdSums
from workbench.replay.runs import with_unique_ids
from workbench.report.explorer import views
from workbench.report.explorer.choices import (
    TRIGGERS,
    Choices,
    choices_of,
    configured,
    single_trigger,
)
from workbench.report.explorer.controls import (
    SIDE_PX,
    SLIDERS,
    WHOLE_PROMPT,
    WITH_WORDS,
    compaction_words,
    counter_words,
    injection_words,
    layout_of,
    make_controls,
    size_words,
    slider_options,
)
from workbench.report.explorer.work import Computed, News, Replayed, Wish, Worker, firing_calls
from workbench.report.labels import counted, number, percent, printable, rhythm
from workbench.report.markup import Markup, element, verbatim
from workbench.report.prompt import call_html, diff_html

NOW = "now"
_PROMPT_AREA_PX = 380
_MOST_MESSAGES = 300

Exporter = Callable[[RunConfig, Path], Path]


def write_toml(config: RunConfig, folder: Path) -> Path:
    """Write a configuration as `<name>.toml`; a file that is there is never replaced.

    Raises:
        ConfigError: the name would lead out of the folder, or there is such a file already.
    """
    path = folder / f"{config.name}.toml"
    if not config.name or config.name.startswith(".") or set(config.name) & set("/\\\0"):
        raise ConfigError(
            f"{printable(config.name)!r} is no plain file name", field="name", hint="a word without slashes, not a path"
        )
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(config.to_toml())
    except FileExistsError:
        raise ConfigError(f"{path.name} is there already", field="name", hint="choose another name") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path.name} can't be written: {error}", field="name", hint="choose another name") from error
    return path


class Explorer:
    """One conversation under one configuration that the controls change; a notebook shows it.

    Args:
        conversations: What `load_recordings` gave, conversations, or a path to load.
        config: Where the controls start. Options without a control stay as they are in it.
        against: What the choice is compared with beside "no summary" and the start itself.
        folder: Where "Export" writes.
        exporter: Writes a configuration into a folder and returns the file.
    """

    def __init__(
        self,
        conversations: Iterable[Conversation] | str | Path,
        config: RunConfig,
        *,
        against: RunConfig | None = None,
        folder: str | Path = ".",
        exporter: Exporter = write_toml,
    ) -> None:
        if isinstance(conversations, str | Path):
            conversations = load_recordings(conversations)
        self._computed = Computed(one for one in with_unique_ids(conversations) if one.calls)
        if not self._computed.conversations:
            raise ConfigError("no conversation with a model call", field="conversations", hint="load other recordings")
        self.base = config
        self.folder = Path(folder)
        self._exporter = exporter
        start = config.replace(name=config.name or "as given")
        self._references = [without_shortening(config), start, *([against] if against is not None else [])]
        self._quiet = False
        self._shown = -1
        self._configured: tuple[Choices, RunConfig] | None = None
        self._start_ratio = config.counter.runes_per_token
        self._controls = make_controls(choices_of(config), self._computed.conversations, self._references, config)
        self._words: dict[str, widgets.HTML] = {
            name: widgets.HTML(layout=layout_of(height="19px")) for name in WITH_WORDS
        }
        self._heading = _html(height=46)
        self._trigger_title, self._trigger = _html(height=20), _html(height=views.TRIGGER_PX + 4)
        self._prompts = _html(height=views.PROMPT_PX + 4)
        self._key = _html(height=58)
        self._numbers, self._source = _html(height=212), _html(height=38)
        self._prompt = widgets.HTML(layout=layout_of(height=f"{_PROMPT_AREA_PX}px", overflow="auto"))
        self._bar = widgets.IntProgress(min=0, max=1, value=0, layout=layout_of(width="130px", height="18px"))
        self._state = _html(height=22)
        self._cancel = widgets.Button(description="Cancel", disabled=True, layout=layout_of(width="80px"))
        self._export = widgets.Button(description="Export this configuration", layout=layout_of(width="200px"))
        self._exported = _html(height=22)
        self._glyphs = widgets.HTML(layout=layout_of(height="0"))
        self._worker = Worker(self._computed, self._hear)
        self.widget = self._arranged()
        for name, control in self._controls.items():
            if name != "name":
                control.observe(self._moved, names="value")
        self._cancel.on_click(lambda _: self.cancel())
        self._export.on_click(lambda _: self._on_export())
        self._update()

    # --- for code ----------------------------------------------------------------------------------------

    @property
    def choices(self) -> Choices:
        """The position of the controls."""
        value = {name: control.value for name, control in self._controls.items()}
        if value["runes_per_token"] != self._start_ratio:
            value["runes_per_token"] = round(value["runes_per_token"], 3)  # a slider adds tenths
        value["on"] = frozenset(name for name in TRIGGERS if value[f"on_{name}"])
        return Choices(**{field.name: value[field.name] for field in fields(Choices)})

    @property
    def config(self) -> RunConfig:
        """The configuration that the controls mean."""
        choices = self.choices
        if self._configured is None or self._configured[0] != choices:
            self._configured = choices, configured(self.base, choices, name=NOW)
        return self._configured[1]

    @property
    def against(self) -> RunConfig:
        """The configuration that it is compared with."""
        place: int = self._controls["against"].value
        return self._references[place]

    @property
    def conversation(self) -> Conversation:
        """The conversation that is shown."""
        return self._computed.conversations[self._place]

    @property
    def _place(self) -> int:
        """Of the conversation that is shown."""
        place: int = self._controls["conversation"].value
        return place

    @property
    def numbers(self) -> dict[str, Any]:
        """The key numbers of the choice, from an exact replay; waits for it."""
        return self._numbers_of(self.config)

    @property
    def numbers_against(self) -> dict[str, Any]:
        """The same of the configuration that it is compared with."""
        return self._numbers_of(self.against)

    @property
    def firings(self) -> tuple[int, ...] | None:
        """At which calls the choice fires, from sums and without a replay; None where only a replay can say."""
        return firing_calls(self._sums(), self.config)

    @property
    def is_busy(self) -> bool:
        """A replay is going on in the background."""
        return self._worker.is_busy

    @property
    def shown(self) -> dict[str, str]:
        """The HTML of every part that changes, by name."""
        parts = {
            "heading": self._heading,
            "state": self._state,
            "trigger title": self._trigger_title,
            "trigger": self._trigger,
            "prompts": self._prompts,
            "numbers": self._numbers,
            "source": self._source,
            "prompt": self._prompt,
            "exported": self._exported,
        }
        words = {f"words of {name}": part for name, part in self._words.items()}
        return {name: part.value for name, part in (parts | words).items()}

    def set(self, **values: Any) -> Explorer:
        """Move controls: `explorer.set(token=1500, runes_per_token=1.3, on={"token"})`, all at once.

        Names are those of `Choices`, and `conversation` (an id), `against` (a name) and `call`.

        Raises:
            ConfigError: there is no such control, or it has no such position.
        """
        before = {name: (getattr(one, "options", None), one.value) for name, one in self._controls.items()}
        with self._together():
            try:
                # The conversation first, as it decides which calls there are; the call last.
                for name in sorted(values, key=lambda name: (name != "conversation", name == "call")):
                    self._set(name, values[name])
                    self._follow_conversation()
            except ConfigError:
                self._restore(before)
                raise
        self._update()
        return self

    def wait(self) -> Explorer:
        """Return when everything that the controls ask for is shown."""
        self._worker.wait()
        return self

    def cancel(self) -> None:
        """Stop replaying; what is there stays."""
        self._worker.stop()

    def export(self, name: str) -> Path:
        """Write the configuration under a name into the folder.

        Raises:
            ConfigError: the name would lead out of the folder, or there is such a file already.
        """
        return self._exporter(self.config.replace(name=name), self.folder)

    def press_export(self, name: str) -> None:
        """Do what the button does: write under this name, and say so or why not."""
        self._controls["name"].value = name
        self._on_export()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        shown = self.widget._repr_mimebundle_(**options)
        return {**shown, "text/plain": repr(self)} if isinstance(shown, dict) else shown

    def __repr__(self) -> str:
        return f"Explorer({len(self._computed.conversations)} conversations, {self.base.label()})"

    # --- moving ------------------------------------------------------------------------------------------

    @contextmanager
    def _together(self) -> Iterator[None]:
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def _restore(self, before: dict[str, tuple[Any, Any]]) -> None:
        place = before["conversation"][1]
        self._controls["conversation"].value = place
        self._follow_conversation()
        for name, (options, value) in before.items():
            if options is not None and name != "conversation":
                self._controls[name].options = options
            self._controls[name].value = value

    def _follow_conversation(self) -> None:
        """Another conversation starts at its last call, where most has been summarised."""
        if self._shown != self._place:
            self._shown = self._place
            slider = self._controls["call"]
            slider.max = max(len(self.conversation.calls) - 1, slider.min)
            slider.value = slider.max

    def _set(self, name: str, value: Any) -> None:
        if name == "on":
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise ConfigError.for_field(name, value, f"a set of {', '.join(TRIGGERS)}")
            wanted = set(value)
            for unknown in sorted(map(str, wanted - set(TRIGGERS))):
                raise ConfigError.for_field(name, unknown, ", ".join(TRIGGERS), hint=nearest_name(unknown, TRIGGERS))
            for trigger in TRIGGERS:
                self._controls[f"on_{trigger}"].value = trigger in wanted
            return
        if name not in self._controls:
            raise ConfigError.for_field(name, value, "a control", hint=nearest_name(name, self._controls))
        control = self._controls[name]
        if name in {"conversation", "against"}:
            names = self._names_of(name)
            if value not in names:
                raise ConfigError.for_field(name, value, ", ".join(names[:5]), hint=nearest_name(str(value), names))
            value = names.index(value)
        elif isinstance(control, widgets.SelectionSlider):
            self._make_room(control, name, value)
        try:
            control.value = value
        except Exception as error:  # traitlets has an error type for each kind of control
            raise ConfigError.for_field(name, value, "a position of this control") from error
        if control.value != value:  # a slider takes the nearest
            allowed = f"{control.min:g} to {control.max:g}" if hasattr(control, "min") else "a position of this control"
            raise ConfigError.for_field(name, value, allowed)

    def _make_room(self, control: widgets.SelectionSlider, name: str, value: Any) -> None:
        """A position between those that a slider has."""
        largest = 1.0 if name == "share" else math.inf
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and 0 <= value <= largest):
            raise ConfigError.for_field(name, value, "a share from 0 to 1" if name == "share" else "a number from 0 on")
        known = [one for _, one in control.options]
        if value not in known:
            control.options = slider_options(sorted([*known, value]), name)

    def _names_of(self, name: str) -> list[str]:
        if name == "conversation":
            return [one.id for one in self._computed.conversations]
        return [one.label() for one in self._references]

    def _moved(self, _: Any) -> None:
        if not self._quiet:
            self._update()

    def _update(self) -> None:
        """Show at once what sums can say, and wish for the rest."""
        with self._together():
            self._follow_conversation()
        for part in (self._prompts, self._numbers, self._prompt):
            part.add_class("wbx-stale")
        self._show()
        self._cancel.disabled = False
        self._say("replaying …", 0, 1)
        self._worker.wish(Wish(self._place, self.config, self.against, self._controls["call"].value))

    def _hear(self, news: News) -> None:
        """The thread tells how far it is."""
        if news.kind == "progress":
            self._say(news.text, news.done, news.total)
        elif news.kind == "done":
            self._show()
        else:
            self._cancel.disabled = True
            if news.kind != "finished":
                self._show(is_coming=False)
            stopped = "cancelled: move a control to replay"
            words = {"finished": "exact replay", "stopped": stopped, "failed": news.text}[news.kind]
            self._say(words, int(news.kind == "finished"), 1, wrong=news.kind == "failed")

    def _say(self, words: str, done: int, total: int, *, wrong: bool = False) -> None:
        self._bar.max, self._bar.value = max(total, 1), done
        counts = f" {done} of {total}" if total > 1 else ""
        self._state.value = views.framed(element("span", words + counts, class_="action" if wrong else "muted"))

    # --- showing -----------------------------------------------------------------------------------------

    def _replayed(self, config: RunConfig) -> Replayed | None:
        return self._computed.replayed(self._place, config)

    def _sums(self) -> ThresholdSums | None:
        config = self.config
        return None if config.summarizer is None else self._computed.sums(self._place, config)

    def _numbers_of(self, config: RunConfig) -> dict[str, Any]:
        self.wait()
        found = self._replayed(config)
        if found is None:
            raise WorkbenchError("the replay was cancelled or failed", hint="move a control to replay")
        return found.numbers

    def _show(self, *, is_coming: bool = True) -> None:
        config, against = self.config, self.against
        now, other, sums = self._replayed(config), self._replayed(against), self._sums()
        calls = firing_calls(sums, config)
        n_calls = len(self.conversation.calls)
        lead = views.headline(now, other, calls, n_calls, is_coming=is_coming)
        self._heading.value = views.framed(element("div", lead, class_="lead"), height_px=44)
        self._show_trigger(config, sums, now, planned=calls is not None)
        self._show_words(config, sums, now)
        if is_coming and (now is None or other is None):
            return  # what stands there stays, pale, until the replay is there
        call = min(self._controls["call"].value, max(n_calls - 1, 0))
        figure = views.prompt_figure(now, other, call)
        self._prompts.value = views.framed(figure)
        key = views.prompt_key(against.label())
        self._key.value = views.framed(element("b", "What each prompt holds"), key)
        self._numbers.value = views.framed(views.numbers_table(now, other))
        self._source.value = views.framed(
            element("span", views.source_words(now, self.conversation.id, n_calls), class_="muted")
        )
        self._prompts.remove_class("wbx-stale")
        self._numbers.remove_class("wbx-stale")
        self._show_prompt(config, against, call)

    def _show_trigger(
        self, config: RunConfig, sums: ThresholdSums | None, now: Replayed | None, *, planned: bool
    ) -> None:
        view, how = None, "from the replay"
        if planned and sums is not None:
            firings = sums.firings(config)
            tracks = sums.tracks(config, firings)
            if tracks:
                view, how = views.planned_view(sums, firings, _nearest(tracks)), "at once, from sums"
        elif now is not None:
            view = views.replayed_view(now)
        if view is None and now is None and not planned and config.summarizer is not None:
            self._trigger.add_class("wbx-stale")
            return
        self._trigger.remove_class("wbx-stale")
        limit = (
            f" · threshold {number(view.track.threshold)}"
            if view is not None and view.track.unit != "milliseconds"
            else ""
        )
        why = sums.why_not(config) if sums is not None and not planned else ""
        how = f"only by replay: {why}" if why else how
        title = element("b", "What the trigger sees: new since the last summary")
        self._trigger_title.value = views.framed(title, element("span", f"{limit} · {how}", class_="muted"))
        self._trigger.value = views.framed(views.trigger_figure(view, len(self.conversation.calls)))

    def _show_prompt(self, config: RunConfig, against: RunConfig, call: int) -> None:
        place = self._place
        mine, other = self._computed.prompt(place, config, call), self._computed.prompt(place, against, call)
        if mine is None or other is None:
            return
        whole = self._controls["view"].value == WHOLE_PROMPT
        remark: Markup | str = ""
        if whole and len(mine.messages) > _MOST_MESSAGES:
            remark = element(
                "p", f"{counted(len(mine.messages), 'message')}: too many to list, so here is what differs"
            )
            whole = False
        glyphs = views.glyphs_style(self._computed.glyphs(place))
        if self._glyphs.value != glyphs:
            self._glyphs.value = glyphs
        # Both are HTML of this package's own making, from `markup.py`.
        shown = verbatim(call_html(mine) if whole else diff_html(other.diff(mine)))
        self._prompt.value = views.framed(remark, shown, class_="prompt")
        self._prompt.remove_class("wbx-stale")

    def _show_words(self, config: RunConfig, sums: ThresholdSums | None, now: Replayed | None) -> None:
        """What each position means, in words."""
        choices, n_calls = self.choices, len(self.conversation.calls)
        words = {name: self._alone(config, sums, name, n_calls) for name in TRIGGERS}
        found = None if now is None else now.numbers
        words["runes_per_token"] = counter_words(choices, found)
        words["mode"] = injection_words(choices)
        words["words"] = size_words(choices, found)
        words["skip_recent"] = (
            f"the newest {counted(choices.skip_recent, 'event')} stay as they are"
            if choices.skip_recent
            else "nothing is spared"
        )
        words["result_tokens"] = compaction_words(choices, found)
        for name, value in words.items():
            self._words[name].value = views.framed(element("span", value, class_="muted"), height_px=18)

    def _alone(self, config: RunConfig, sums: ThresholdSums | None, name: str, n_calls: int) -> str:
        """What one trigger would do if it were the only one."""
        choices = self.choices
        if not choices.summaries:
            return "no summaries are made"
        if name not in choices.on:
            return "off"
        alone = config.replace(trigger=single_trigger(self.base, choices, name))
        calls = firing_calls(sums, alone)
        if calls is None and choices.on == {name}:
            found = self._replayed(config)
            calls = None if found is None else found.numbers["fired_calls"]
        what = {
            "event": f"more than {counted(choices.event, 'new event')}",
            "token": f"more than {counted(choices.token, 'new token')}",
            "share": f"more new tokens than {percent(choices.share)} of the window",
            "silence": f"after {views.duration_words(choices.silence_s)} of silence",
        }[name]
        if calls is None:
            return what
        return f"{what}: {rhythm(calls, n_calls)}{'' if choices.on == {name} else ', alone'}"

    # --- layout ------------------------------------------------------------------------------------------

    def _arranged(self) -> widgets.VBox:
        c = self._controls

        def trigger(name: str) -> list[widgets.Widget]:
            return [widgets.HBox([c[f"on_{name}"], c[SLIDERS.get(name, name)]]), self._words[name]]

        def group(title: str) -> widgets.HTML:
            return widgets.HTML(views.framed(element("b", title)), layout=layout_of(margin="8px 0 0 0"))

        side = [
            c["conversation"],
            c["against"],
            group("Trigger"),
            c["summaries"],
            c["combine"],
            *(part for name in TRIGGERS for part in trigger(name)),
            group("Counter"),
            c["counter"],
            c["runes_per_token"],
            self._words["runes_per_token"],
            group("Injection and compaction"),
            widgets.HBox([c["inject"], c["mode"]]),
            self._words["mode"],
            c["words"],
            self._words["words"],
            c["skip_recent"],
            self._words["skip_recent"],
            c["intra_run"],
            widgets.HBox([c["compact"], c["result_tokens"]]),
            self._words["result_tokens"],
        ]
        results = [
            self._heading,
            widgets.HBox([self._bar, self._cancel, self._state], layout=layout_of(height="32px", align_items="center")),
            self._trigger_title,
            self._trigger,
            self._key,
            self._prompts,
            self._numbers,
            self._source,
        ]
        export = widgets.HBox([c["name"], self._export, self._exported], layout=layout_of(align_items="center"))
        below = [widgets.HBox([c["call"], c["view"]], layout=layout_of(flex_flow="row wrap")), self._prompt, export]
        top = widgets.HBox(
            [
                widgets.VBox(side, layout=layout_of(width=f"{SIDE_PX}px")),
                widgets.VBox(results, layout=layout_of(width=f"{views.WIDTH_PX + 16}px", padding="0 0 0 12px")),
            ],
            layout=layout_of(flex_flow="row wrap"),
        )
        return widgets.VBox([widgets.HTML(views.STYLE, layout=layout_of(height="0")), self._glyphs, top, *below])

    def _on_export(self) -> None:
        try:
            path = self.export(self._controls["name"].value.strip())
        except (WorkbenchError, OSError) as error:
            hint = getattr(error, "hint", "")
            words = element("span", f"{error}{f'; {hint}' if hint else ''}", class_="action")
        else:
            words = element("span", f"written: {path.name}, in {path.resolve().parent.name}/")
        self._exported.value = views.framed(words)


def explore(
    conversations: Iterable[Conversation] | str | Path,
    config: RunConfig,
    *,
    against: RunConfig | None = None,
    folder: str | Path = ".",
) -> Explorer:
    """Controls for the options that matter, over recorded conversations, and what they do at once.

    Args:
        conversations: What `load_recordings` gave, conversations, or a path to load.
        config: Where the controls start.
        against: What the choice is compared with beside "no summary" and the start itself.
        folder: Where "Export this configuration" writes its TOML file.
    Raises:
        ConfigError: there is no conversation with a model call.
        RecordingError: nothing could be loaded.
    Source: WB-UI-03.
    """
    return Explorer(conversations, config, against=against, folder=folder)


def _html(*, height: int) -> widgets.HTML:
    return widgets.HTML(layout=layout_of(height=f"{height}px", overflow="hidden"))


def _nearest(tracks: Sequence[Any]) -> Any:
    """The check to draw: the one that came nearest to its threshold."""
    return max(tracks, key=lambda track: max(track.values, default=0) / max(track.threshold, 1))
