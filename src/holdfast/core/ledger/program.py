"""What a step would take at best, and by whose word: the basis of program goodput. Pure.

Kept steps' FLOPs ÷ (their time × the peak of their chips), which is the same as kept steps × an
ideal step ÷ their time, with FLOPs ÷ (chips × peak) for the ideal step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.core.durations import SECOND_NS
from holdfast.core.ledger.account import Account
from holdfast.core.value import value

MAX_FLOPS = 10**26
MUCH = 30  # a peak that was measured on a busy machine may be too low by less
MOST_NAMED = 4
MAX_TOKENS = 2**48 - 1  # of a step: what a record of the journal holds
SET_ANY = "tell run.flops, or set --flops-per-step or --ideal-step"


@value
class Declared:
    """What the command line says, 0 where it says nothing.

    `flops_per_step`: of all chips together. `peak_flops`: of one chip, a second.
    """

    ideal_step_ns: int = 0
    flops_per_step: int = 0
    peak_flops: int = 0


@value
class Reached:
    """What this device really reached when it was calibrated; 0 or "": it was not.

    `flops` and `bytes` of its memory: a second. `on`: the day, by UTC. `most`: FLOPs in whatever
    type of numbers was the fastest. `together` devices summed something up, each sending and
    receiving `together_bytes` a second.
    """

    flops: int = 0
    dtype: str = ""
    bytes: int = 0
    on: str = ""
    most: int = 0
    together: int = 0
    together_bytes: int = 0


@value
class ToldProgram:
    """What rank 0 tells of its step and of its device, 0 or "" where it knows nothing.

    `bytes`: what the products of a step read and write, of all chips together. `chip`: the device's
    name in the table of peaks. `devices`: how many the framework trains on, of so many `kinds`.
    `tokens`: of the step that `flops` were counted for, where other steps may have others.
    `left_out`: what the count of the FLOPs lacks, in words. `most_flops`: the chip's highest peak
    of any type of numbers. `source`: whose figures these are; `as_of`: the month of the table.
    """

    flops: int = 0
    left_out: tuple[str, ...] = ()
    device: str = ""
    devices: int = 0
    dtype: str = ""
    chip: str = ""
    peak_flops: int = 0
    bytes: int = 0
    reached: Reached = Reached()
    tokens: int = 0
    most_flops: int = 0
    source: str = ""
    as_of: str = ""
    kinds: int = 1


@value
class Basis:
    """Both together. What is declared counts before what is told.

    `told_before`: other FLOPs of a step that the script told earlier, in order, each with the
    tokens that they were counted for. `tokens`: of all
    `token_steps` of rank 0 that told how many they had, whether they were kept or not.
    `of_attempts`: what each attempt told last, in order.
    """

    declared: Declared = Declared()
    told: ToldProgram = ToldProgram()
    told_before: tuple[tuple[int, int], ...] = ()
    tokens: int = 0
    token_steps: int = 0
    of_attempts: tuple[tuple[int, ToldProgram], ...] = ()

    @property
    def flops(self) -> int:
        """Of a step; 0: nobody says. Where steps have other tokens: of one with their mean."""
        return self.declared.flops_per_step or self._as_tokens_are(self.told.flops)

    @property
    def bytes(self) -> int:
        """What the products of a step read and write; 0: not known. Of the script's own count."""
        return 0 if self.declared.flops_per_step else self._as_tokens_are(self.told.bytes)

    def _as_tokens_are(self, counted: int) -> int:
        if not self.told.tokens or not self.token_steps:
            return counted
        return counted * self.tokens // (self.told.tokens * self.token_steps)

    def _is_alike(self, flops: int, tokens: int) -> bool:
        """Whether these are the same FLOPs a token, by which steps go that tell theirs."""
        return (
            self.token_steps > 0 < tokens and flops * self.told.tokens == self.told.flops * tokens
        )

    @property
    def tokens_per_step(self) -> float | None:
        """On average; None: no step told how many it had."""
        return self.tokens / self.token_steps if self.token_steps else None

    @property
    def flops_per_token(self) -> float | None:
        """None: it is not known."""
        per_step = self.tokens_per_step
        return self.flops / per_step if self.flops and per_step else None

    def _peak_of(self, told: ToldProgram) -> int:
        return self.declared.peak_flops or told.peak_flops or told.reached.flops

    def _most_of(self, told: ToldProgram) -> int:
        """What nothing on that device is beyond: its peak for the narrowest numbers that it has."""
        return max(self._peak_of(told), told.most_flops or told.reached.most)

    @property
    def peak_flops(self) -> int:
        """Of a chip, a second; 0: it is not known. Where no data sheet is, what was measured."""
        return self._peak_of(self.told)

    def ideal_chip_ns(self, account: Account) -> int | None:
        """What the kept steps of an account would take at best; None: it is not known."""
        if self.declared.ideal_step_ns:
            return account.kept_chip_ns(account.steps_kept * self.declared.ideal_step_ns)
        return self._chip_ns(account, self._peak_of)

    def least_chip_ns(self, account: Account) -> int | None:
        """What they cannot take less than: at the devices' highest peak of any type of numbers.

        Quantised products are held against the bf16 peak, and may be beyond it.
        """
        if self.declared.ideal_step_ns:
            return self.ideal_chip_ns(account)
        return self._chip_ns(account, self._most_of)

    def reached_chip_ns(self, account: Account) -> int | None:
        """The same at the peak that the device was measured to reach; None: it was not."""
        if self.declared.ideal_step_ns:
            return None
        return self._chip_ns(account, lambda told: told.reached.flops)

    def least_reached_chip_ns(self, account: Account) -> int | None:
        """The least by what was measured, in whatever type was the fastest; None: it was not."""
        if self.declared.ideal_step_ns:
            return None
        return self._chip_ns(account, lambda told: max(told.reached.flops, told.reached.most))

    def _chip_ns(self, account: Account, peak_of: Callable[[ToldProgram], int]) -> int | None:
        """FLOPs ÷ peak of all kept steps, those of each attempt by the peak of its device."""
        each = [(steps, peak_of(told)) for told, steps in self._devices(account)]
        if not self.flops or not all(peak for _, peak in each):
            return None
        return sum(steps * self.flops * SECOND_NS // peak for steps, peak in each)

    def _devices(self, account: Account) -> list[tuple[ToldProgram, int]]:
        """Each device on which steps were kept, as last told of, and how many; the newest last.

        Steps of an attempt that told of none are taken for the newest one's.
        """
        newest: dict[str, ToldProgram] = {}
        kept: dict[str, int] = {}
        for attempt, told in self.of_attempts:
            newest[told.device] = told
            kept[told.device] = kept.get(told.device, 0) + account.kept_of.get(attempt, 0)
        kept.pop(self.told.device, None)
        others = [(newest[device], steps) for device, steps in kept.items() if steps]
        own = account.steps_kept - sum(steps for _, steps in others)
        return [*others, (self.told, own)] if own or not others else others

    def words(self, account: Account) -> str:
        """Of what the share is one; where it is not known, why, and what to do."""
        if self.declared.ideal_step_ns:
            return "an ideal step, of each step kept"
        if not self.flops:
            return f"Not measured: {SET_ANY}"
        devices = self._devices(account)
        for told, _ in devices:
            if not self._peak_of(told):
                # A calibration is of one device, and found again by its name.
                is_one = told.kinds == 1 and told.device
                calibrate = ", or run holdfast calibrate there" if is_one else ""
                return (
                    f"Not measured: the {_of_type(told)}peak of {told.device or 'its device'} is "
                    f"not known; set --peak-flops{calibrate}"
                )
        if self.declared.peak_flops:
            peak = f"the peak that --peak-flops says, {scaled(self.peak_flops)}FLOP/s a chip"
        elif len(devices) == 1:
            peak = _peak_words(devices[0][0])
        else:
            peak = " and ".join(f"{_peak_words(one)} (of {n:,} steps)" for one, n in devices)
        by = "the script" if not self.declared.flops_per_step else "--flops-per-step"
        each = self.flops_per_token
        of_token = "" if each is None else f" ({scaled(each)}FLOP a token)"
        return f"of {peak}; {scaled(self.flops)}FLOP a step{of_token}, said by {by}"

    @property
    def convention(self) -> str:
        """By which of a chip's peaks runs are compared; "": this one is not."""
        told, declared = self.told, self.declared
        if declared.ideal_step_ns or declared.peak_flops or not self.flops:
            return ""
        if not told.peak_flops or told.dtype != "bf16":
            return ""
        return "effective MFU: against the bf16 peak, whatever numbers the products are in"

    def notes(self, account: Account) -> Iterator[str]:
        """What must be said of it: what does not count, and what cannot be."""
        if self.declared.ideal_step_ns and self.flops:
            yield "program goodput goes by --ideal-step, and not by the FLOPs that are known too"
            return
        if not self.declared.flops_per_step:
            for one in self.told.left_out:
                yield f"the FLOPs of a step are counted with a gap: {one}"
            if others := [flops for flops, of in self.told_before if not self._is_alike(flops, of)]:
                yield (
                    f"the script told other FLOPs of a step before ({_few_of(others)}): the number "
                    "that it told last goes for all steps"
                )
        ideal = self.ideal_chip_ns(account) if self.flops else None
        if ideal is not None and ideal > account.productive > 0:
            times = ideal / account.productive
            words = f"{times:,.0f}" if times >= 100 else f"{times:.3g}"
            likelier = self._likelier_wrong(account.chips, times)
            if (self.least_chip_ns(account) or 0) <= account.productive:
                likelier = (
                    "so fast are quantised products alone, which are held against that peak as "
                    f"well (effective MFU); if there are none, {likelier}"
                )
            yield (
                f"the FLOPs of the kept steps are {words} times what the peak allows: {likelier}"
            )

    def _likelier_wrong(self, chips: int, times: float) -> str:
        by_devices = self.told.devices / chips
        if by_devices > 1 and times <= MUCH * by_devices:
            return (
                f"likely the number of chips is wrong: the script trains on {self.told.devices} "
                f"devices, and the run counts {chips} (--chips)"
            )
        if self.declared.peak_flops:
            return (
                "likely --peak-flops is wrong (it is the peak of one chip, in FLOP/s), or the "
                "FLOPs of a step are"
            )
        if not self.told.peak_flops and times <= MUCH:
            return "likely the measured peak is too low: calibrate where nothing else runs"
        sheet = "that of the chip's data sheet" if self.told.peak_flops else "one that was measured"
        return f"likely the FLOPs of a step are wrong: the peak is {sheet}"


def _few_of(flops: list[int]) -> str:
    """Each of them, in order; of many how many there are, and how far they reach."""
    words = list(dict.fromkeys(f"{scaled(one)}FLOP" for one in flops))
    if len(flops) <= MOST_NAMED:
        return ", ".join(words)
    return f"{len(flops):,} of them, {' to '.join(dict.fromkeys((words[0], words[-1])))}"


def _of_type(told: ToldProgram) -> str:
    """Which peak is meant, where it is not the usual one."""
    return f"{told.dtype} " if told.dtype not in ("", "bf16") else ""


def _peak_words(told: ToldProgram) -> str:
    """The peak of a device, whose figure it is, and what it was measured to reach."""
    reached = told.reached
    measured = f"measured on {reached.on}"
    if not told.peak_flops:
        return f"the {reached.dtype} peak {measured}, {scaled(reached.flops)}FLOP/s a chip"
    sheet = f"{told.chip} {told.dtype} peak, {scaled(told.peak_flops)}FLOP/s a chip"
    beside = [f"by {told.source}, as of {told.as_of}"] if told.source else []
    beside += [f"{scaled(reached.flops)}FLOP/s {measured}"] if reached.flops else []
    return f"{sheet} ({'; '.join(beside)})" if beside else sheet


def scaled(number: float) -> str:
    """A great number with a prefix: 6.1 T, 989.5 T, 2.25 P; ready for its unit."""
    value, prefixes = float(number), iter(("", "k", "M", "G", "T", "P", "E", "Z", "Y"))
    while value >= 999.95:
        next(prefixes)
        value /= 1000
    return f"{value:.4g} {next(prefixes)}"
