"""A client that puts the frames of one attempt, each at any process, until all are acknowledged."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ringpop_py.flow.shuffle.protocol.messages import Answer
from ringpop_py.flow.shuffle.protocol.record import Winner
from ringpop_sim.flow.shuffle.process import Frame
from ringpop_sim.flow.shuffle.truth import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_sim.flow.shuffle.around import Around
    from ringpop_sim.flow.shuffle.process import Process


class Client:
    """See the module.

    Attributes:
        stopped: whether it has died, or has learned that nothing is left to do.
    """

    def __init__(
        self,
        world: Around[Process],
        uid: int,
        task: int,
        attempt: int,
        frames: Sequence[Sequence[int]],
        name: str,
    ) -> None:
        self.uid = uid
        self.task = task
        self.attempt = attempt
        self.stopped = False
        self._world = world
        self._frames = [
            tuple(
                sorted(
                    Row(
                        key,
                        attempt,
                        number,
                        place,
                        f"{number}.{place} {name}",
                    )
                    for place, key in enumerate(keys)
                )
            )
            for number, keys in enumerate(frames)
        ]
        self._left = list(range(len(frames)))
        world.truth.rows[attempt] = tuple(row for rows in self._frames for row in rows)

    @property
    def is_done(self) -> bool:
        """Whether all its frames are acknowledged."""
        return not self._left

    @property
    def receipt(self) -> Winner:
        """The numbers of its frames and rows."""
        return Winner(len(self._frames), sum(map(len, self._frames)))

    def stop(self) -> None:
        """Put no more frames."""
        self.stopped = True

    def again(self) -> None:
        """Put everything once more."""
        self.stopped, self._left = False, list(range(len(self._frames)))

    def step(self) -> None:
        """Put a frame that is not acknowledged yet."""
        if self.stopped or self.is_done:
            return
        world = self._world
        number = world.rng.choice(self._left[:2])
        is_last = number == len(self._frames) - 1
        receipt = self.receipt if is_last else None
        frame = Frame((self.attempt, number), self._frames[number], receipt)
        world.call(
            world.rng.choice(sorted(world.processes)),
            lambda process, reply: process.put(self.uid, frame, reply),
            partial(self._answered, number),
        )
        world.after(1 + world.rng.randrange(world.pace), self.step)

    def _answered(self, number: int, answer: Answer | None) -> None:
        if answer is Answer.OK and number in self._left:
            self._left.remove(number)
        elif answer in (Answer.ENDED, Answer.DELETED):
            self.stopped = True
