"""The planner's advice as text: whether a task is better than the trivial protocol, what to change, and why.

Rules: every sentence follows from the figures of the same plan; if a recommendation holds only under a condition that
the figures cannot show, the sentence states the condition; settings have the names that they have in the API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fsl_async.costs.variants import Name, Question
from fsl_async.privacy.utility import outlook, unlearnt
from fsl_async.server_rules import optimizer_arrays
from parties.commands.plan.figures import Assumptions, Crossover, Figures, Transfer, percent, size
from parties.deployment.memory_need import rule_bytes

SETTINGS: Mapping[Name, dict[str, str]] = {
    Name.BASIC: {"selection": "adaptive", "alignment": "all"},
    Name.MEGA: {"selection": "adaptive", "alignment": "all"},
    Name.UNION: {"selection": "adaptive", "alignment": "union"},
    Name.EPOCHS: {"selection": "fixed", "alignment": "all"},
    Name.BOTH: {"selection": "fixed", "alignment": "union"},
    Name.TRIVIAL: {"block": "dense"},
}
"""By variant, the settings of a task."""

CONDITIONS = {
    Name.UNION: "the union may be known to all",
    Name.EPOCHS: "every client keeps its rows",
    Name.BOTH: "every client keeps its rows and the union may be known to all",
}

CLEARLY = 0.9
"""The verdict names another variant if that takes less than this fraction of the time."""

GROUP = 16
"""The number of weights in each of the rows that are suggested if rows of single weights are not worth it."""


@dataclass(frozen=True)
class Advice:
    """A plan's advice as sentences.

    Attributes:
        question: the question.
        assumptions: the bandwidths and speeds from which seconds are computed.
        totals: by variant, the figures of all rounds.
        crossovers: by variant, the largest selection for which it is worth it.
        asked: the variant that the task's settings select.
        plainly: the variants in which the block moves plainly once its union is known.
        rows: what a client transfers that retrieves its rows, in a round over all rows.
        whole: what one transfers that has all blocks whole.
    """

    question: Question
    assumptions: Assumptions
    totals: Mapping[Name, Figures]
    crossovers: Mapping[Name, Crossover]
    asked: Name
    plainly: frozenset[Name]
    rows: Transfer
    whole: Transfer

    @property
    def _worth(self) -> bool:
        return self.totals[self.asked].transfer_seconds < self.totals[Name.TRIVIAL].transfer_seconds

    def verdict(self) -> str:
        """Whether anything is learnt, and the task is better than the trivial protocol, and what to change."""
        if told := unlearnt(self.question.asked):
            return f"Not worth it: {told}."
        mine, trivial = self.totals[self.asked], self.totals[Name.TRIVIAL]
        rounds = self.question.rounds
        return (
            f"{'Worth it' if self._worth else 'Not worth it'}: in {rounds if rounds > 1 else 'a'} "
            f"round{'s' if rounds > 1 else ''} a client sends {size(mine.up)} and receives {size(mine.down)}, with the "
            f"trivial protocol {size(trivial.up)} and {size(trivial.down)}; {self._change()}."
        )

    def _change(self) -> str:
        others = {Name.TRIVIAL, self.asked} | ({Name.BASIC} if Name.MEGA in self.totals else set())
        if self.question.rounds == 1:
            others |= {Name.EPOCHS, Name.BOTH}  # only later rounds would gain
        rivals = [name for name in self.totals if name not in others]
        enough = CLEARLY * min(self.totals[name].transfer_seconds for name in (self.asked, Name.TRIVIAL))
        best = min(rivals, key=lambda name: self.totals[name].transfer_seconds, default=self.asked)
        if self.totals[best].transfer_seconds < enough:
            then = self.totals[best]
            condition = f", if {CONDITIONS[best]}" if best in CONDITIONS else ""
            return f"{self._settings(best)} would make that {size(then.up)} and {size(then.down)}{condition}"
        if self._worth:
            return "nothing has to change"
        block, most = self.question.block, round(self.crossovers[self.asked].transfer * self.question.rows)
        if not most:
            return f'make block "{block}" dense'
        return f'select at most {most:,} rows of block "{block}" ({self._share(most)}), or make it dense'

    def _settings(self, name: Name) -> str:
        """The settings in which a variant differs from the task."""
        asked = SETTINGS[self.asked]
        return " and ".join(f'{field}="{value}"' for field, value in SETTINGS[name].items() if asked[field] != value)

    def _share(self, select: float) -> str:
        return percent(select / self.question.rows)

    # ---- further sentences

    def advice(self, crossover: Callable[[Name, Question, Assumptions], Crossover]) -> tuple[str, ...]:
        """Further sentences: the limits, and what else would pay under which conditions.

        Args:
            crossover: computes the limits for another question.
        """
        sentences = (
            self._bounds(),
            self._if_grouped(crossover),
            self._if_whole(),
            self._if_fixed(),
            self._of_the_union(),
            self._of_the_optimizer(),
            self._of_slack(),
            outlook(self.question.asked, self.question.rounds),
        )
        return tuple(sentence for sentence in sentences if sentence)

    def _bounds(self) -> str:
        limit, rows = self.crossovers[self.asked], self.question.rows
        return (
            f'Block "{self.question.block}" has select={self.question.select:,} of rows={rows:,} '
            f"({self._share(self.question.select)}): as asked, a client's time is saved up to "
            f"select={round(limit.transfer * rows):,} ({percent(limit.transfer)}), and its upload alone up to "
            f"select={round(limit.upload * rows):,} ({percent(limit.upload)})."
        )

    def _if_grouped(self, crossover: Callable[[Name, Question, Assumptions], Crossover]) -> str:
        question = self.question
        if self._worth or question.width > 1 or question.rows < GROUP:
            return ""
        rows, select = -(-question.rows // GROUP), -(-question.select // GROUP)
        grouped = replace(
            question.without_bound, rows=rows, select=select, width=GROUP, union=min(rows, max(select, question.union))
        )
        limit = crossover(Name.MEGA, grouped, self.assumptions)
        return (
            f"If weights are needed {GROUP} at a time, make rows of them (width={GROUP}): that saves time up to "
            f"{percent(limit.transfer)} of the rows, and upload up to {percent(limit.upload)}."
        )

    def _if_whole(self) -> str:
        """What changes for a client that has the blocks whole, and submits with trees of its own."""
        rows, whole = self.rows, self.whole
        moved = f"sends {size(whole.up)} and receives {size(whole.down)} in a round"
        if self.asked not in (Name.BASIC, Name.MEGA):
            return f"A client that fetches the blocks whole, with `...`, {moved}."
        instead = f"instead of {size(rows.up)} and {size(rows.down)}"
        less = "less" if whole.seconds < rows.seconds else "more"
        return f"A client that fetches the blocks whole, with `...`, {moved} {instead}, which takes {less} time."

    def _if_fixed(self) -> str:
        fixed = {Name.UNION: Name.BOTH}.get(self.asked, Name.EPOCHS)
        mine, then = self.totals[self.asked], self.totals[fixed]
        if fixed == self.asked or self.asked is Name.BOTH or self.question.rounds == 1:
            return ""
        if then.transfer_seconds >= mine.transfer_seconds:
            return ""
        return (
            f'If every client keeps its rows for all {self.question.rounds} rounds, set selection="fixed": '
            f"{size(then.up)} up instead of {size(mine.up)}."
        )

    def _of_the_union(self) -> str:
        """What a union saves and costs, compared with the same task without one."""
        fixed = self.asked in (Name.EPOCHS, Name.BOTH)
        single = Name.MEGA if Name.MEGA in self.totals else Name.BASIC
        pair = (Name.EPOCHS, Name.BOTH) if fixed else (single, Name.UNION)
        alone, union = (self.totals[name] for name in pair)
        rows = f"a union of {self.question.union:,} rows{' that move plainly' if pair[1] in self.plainly else ''}"
        sent = f"a client sends {size(union.up)} instead of {size(alone.up)}"
        took = f"everything takes {union.seconds:.3g} s instead of {alone.seconds:.3g} s"
        link = f"the servers send each other {size(union.link)} instead of {size(alone.link)}"
        known = "" if self.asked in (Name.UNION, Name.BOTH) else ", if it may be known to all"
        if union.up < alone.up and union.seconds < alone.seconds:
            return f'alignment="union" saves upload and time with {rows}{known}: {sent}, and {took}.'
        if union.up < alone.up:
            return f'alignment="union" saves upload with {rows}{known}: {sent}, though {took}.'
        why = "finding the union takes trees over all rows"
        if union.seconds < alone.seconds:
            return (
                f'alignment="union" saves time, not upload, with {rows}{known}: {took}, and {link}, though {sent}, '
                f"because {why}."
            )
        return f'alignment="union" does not pay with {rows}: {sent}, because {why}, and {took}.'

    def _of_slack(self) -> str:
        clients, task = self.question.clients, self.question.asked
        words = f"A round of {clients:,} needs all of them: one not counted aborts it. Leave slack above min_clients."
        return words if task.protocol != "psr" and clients <= task.quorum else ""

    def _of_the_optimizer(self) -> str:
        task = self.question.asked
        arrays, weights = optimizer_arrays(task.optimizer), sum(block.weights for block in task.model_blocks)
        if not arrays:
            return ""
        return (
            f"The optimizer {type(task.optimizer).__name__} keeps {arrays} float64 for each weight: on each server "
            f"{size(8 * arrays * weights)} in the store and beside each checkpoint, and "
            f"{size(rule_bytes(task))} of memory when a sum is applied."
        )
