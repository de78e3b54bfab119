"""Work that was put aside, and work that is to be tried again: who has to know of it."""

from __future__ import annotations

from dataclasses import dataclass

from events.memory import Task, WorkParked, WorkResumed
from projections.eventtree.units import Units
from projections.facts.canonical import Canon
from projections.memtree.forest import Forest
from projections.replays import Replays
from projections.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Parking:
    """The parts of a Memory that plan work, each of which knows its own as given up or wanted again."""

    transcript: Transcript
    replays: Replays
    forest: Forest
    units: Units
    canon: Canon

    def park(self, event: WorkParked) -> None:
        """This is not to be planned again until it is resumed."""
        match event.task:
            case Task.EXTRACT if event.covers:
                self.transcript.cover(event.turns)
            case Task.EXTRACT:
                self.replays.note_parked(event.request)
            case Task.SUMMARISE:
                self.forest.note_parked(event.request)
            case Task.MERGE:
                self.units.note_parked(event.request)
            case Task.JUDGE:
                self.canon.note_given_up(event.turns)

    def resume(self, event: WorkResumed) -> None:
        """Somebody asked for it to be tried again."""
        match event.task:
            case Task.EXTRACT if event.covers:
                self.transcript.uncover(event.turns)
            case Task.EXTRACT:
                self.replays.note_resumed(event.request)
            case Task.SUMMARISE:
                self.forest.note_resumed(event.request)
            case Task.MERGE:
                self.units.note_resumed(event.request)
            case Task.JUDGE:
                self.canon.note_resumed(event.turns)
