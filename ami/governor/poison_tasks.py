"""Who may have killed the worker before this one: suspects run one at a time, and who does it twice is buried."""

from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger

from ami.governor.crash_log import Board, Suspects
from ami.governor.errors import PoisonTask

logger = get_logger(__name__)


class Trial:
    """One worker's. Without a board nobody is ever suspected; ``acts`` False (dry-run) names and does nothing else."""

    def __init__(self, board: Board | None, acts: bool) -> None:
        self._acts = acts
        self._suspects = Suspects(board.folder) if board else None
        #: The suspects that are here, by delivery tag.
        self._here: dict[Any, str] = {}
        if board is not None and self._suspects is not None:
            left = board.left_behind()
            if acts:  # In dry-run several run at once, and nobody would be known.
                self._suspects.accuse(left)
            for entry in left:
                logger.critical(
                    "The worker before this one was killed at once while it ran %s[%s] (%s MiB at the last look).",
                    entry.task,
                    entry.id,
                    entry.kib // 1024,
                )

    @property
    def open(self) -> frozenset[str]:
        """The ids of the tasks that are suspected."""
        return self._suspects.open if self._suspects else frozenset()

    def reconnected(self) -> None:
        """What a lost connection had delivered is not here any more."""
        self._here.clear()

    def buries(self, message: Any, give_up: Callable[[Any, Exception], Any]) -> bool:
        """Hand what has killed this worker twice to ``give_up``, and answer true; let everything else be run."""
        if not self._suspects:
            return False
        task_id = (message.headers or {}).get("id", "")
        sentence = self._suspects.convicted(task_id) if self._acts else None
        if sentence is None:
            if self.open:
                self._here[message.delivery_tag] = task_id
            return False
        logger.critical(sentence)
        give_up(message, PoisonTask(sentence))
        self._suspects.acquit(task_id)  # Who replays the letter has mended something: it is judged anew.
        return True

    def ended(self, delivery_tag: Any) -> bool:
        """A task has ended and took nobody along; return whether it was a suspect."""
        if not self._here or self._suspects is None:
            return False
        task_id = self._here.pop(delivery_tag, "")
        if task_id not in self.open:
            return False
        self._suspects.acquit(task_id)
        return True

    def lapse(self) -> None:
        """Wait no longer for suspects that did not come back here: another worker has got them, and lives."""
        if self._suspects and not self.open & set(self._here.values()):
            self._suspects.lapse()
