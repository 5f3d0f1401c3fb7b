"""Pairs of names that agree after their prefixes, such as `module.pooler.dense.weight` and `model/pooler/dense/kernel`.

Names are compared word by word, so separators and case do not matter. A rule replaces the first words of initializers
by the first words of tensors. Of all rules that the names allow, the one that pairs most names is taken, then the one
that pairs most of the rest. Where two rules pair equally many, names do not show which is right, and neither is used.
Names that are left are paired if each word of one abbreviates the word of the other.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

Words = tuple[str, ...]
Pairs = Mapping[str, str]
"""Tensors by initializers."""
Fits = Callable[[str, str], bool]
"""Whether a tensor has the dims of an initializer."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SEPARATOR: Final = re.compile(r"[./:]")
_JOINT: Final = re.compile("_")
_INDEX: Final = re.compile(r":\d+$")
"""The number of an output, which TensorFlow appends to the names of variables."""
_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("weight", "kernel", "gamma", "scale", "embedding", "embeddings"), "weight"),
    **dict.fromkeys(("bias", "beta"), "bias"),
    **dict.fromkeys(("running_mean", "moving_mean", "mean"), "mean"),
    **dict.fromkeys(("running_var", "moving_variance", "var"), "variance"),
}
"""What PyTorch, TensorFlow and Flax call the parameters of a layer. A name without any of them is that of a weight."""
_ANY: Final[Words] = ("*",)
"""The ending of all names, which is that of a name without words, such as `bias`."""
_MOST_RIVALS: Final = 64
"""The number of tensors with the same ending above which the ending shows nothing."""
_MOST_RULES: Final = 1000
_ENOUGH: Final = 4
"""The number of names that must agree after prefixes that have nothing in common."""


@dataclass(frozen=True)
class SplitName:
    """A name as words, the position of each and of the rest in the text, and the kind of the parameter."""

    text: str
    words: Words
    starts: tuple[int, ...]
    kind: str

    @classmethod
    def of(cls, text: str) -> SplitName:
        """Split a name."""
        end = len(_INDEX.sub("", text))
        separator = _SEPARATOR if _SEPARATOR.search(text, 0, end) else _JOINT
        last = max((match.end() for match in separator.finditer(text, 0, end)), default=0)
        kind = _KINDS.get(text[last:end].lower())
        if kind is not None:
            end = last
        found = [*_WORD.finditer(text, 0, end)]
        words = tuple(match.group().lower() for match in found)
        return cls(text, words, (*(match.start() for match in found), end), kind or "weight")

    @classmethod
    def of_path(cls, text: str, path: str, rank: int) -> SplitName:
        """Return the name that a parameter of the module at a path probably has in a checkpoint."""
        words = tuple(match.group().lower() for match in _WORD.finditer(path))
        return cls(text, words, (0,) * (len(words) + 1), "weight" if rank > 1 else "bias")


@dataclass(frozen=True)
class RenamingRule:
    """The first words of initializers, and those of their tensors."""

    new: Words
    old: Words

    @property
    def _shared(self) -> int:
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.new, self.old)))

    @property
    def adds(self) -> bool:
        """Whether one side is the other with something before it, or both are the same."""
        return not self.new or not self.old or self.new == self.old

    @property
    def counts(self) -> bool:
        """Whether the numbers on both sides are the same."""
        return [one for one in self.new if one.isdigit()] == [one for one in self.old if one.isdigit()]

    @property
    def related(self) -> int:
        """The number of words of one side that the other has or abbreviates, after the words that both begin with."""
        left, right = self.new[self._shared :], self.old[self._shared :]
        return sum(any(_abbreviates(*sorted((one, other), key=len)) for other in right) for one in left)

    def rank(self, pairs: Pairs) -> tuple[int, bool, bool, int]:
        """Return the order of rules: the larger, the better."""
        return len(pairs), self.counts, self.adds, self.related

    def holds(self, pairs: Pairs, most: int) -> bool:
        """Return whether so many pairs show that the rule is not a coincidence; `most` is how many there could be."""
        if self.adds:
            return True
        return self.counts and (len(pairs) >= min(_ENOUGH, max(most, 2)) or self.related > 0)


def _abbreviates(short: str, long: str) -> bool:
    """Return whether a word has some of the letters of another, in order: `enc` of `encoder`, `attn` of `attention`."""
    if short.isdigit() or long.isdigit() or short[0] != long[0]:
        return False
    letters = iter(long)
    return all(letter in letters for letter in short)


def paired(
    initializers: Sequence[SplitName], tensors: Sequence[SplitName], fits: Fits
) -> list[tuple[RenamingRule, Pairs]]:
    """Return rules and the names that each of them pairs; no name is in two pairs."""
    wanted, free = _unambiguous(initializers), _unambiguous(tensors)
    rules = {rule: _paired(rule, wanted, free, fits) for rule in _rules(wanted.values(), free.values(), fits)}
    most = min(len(wanted), len(free))
    found: list[tuple[RenamingRule, Pairs]] = []
    while rules := {rule: made for rule, made in rules.items() if made and rule.holds(made, most)}:
        best = max(rules, key=lambda rule: rule.rank(rules[rule]))
        chosen = rules[best]
        equals = [made for rule, made in rules.items() if rule.rank(made) == best.rank(chosen)]
        unclear = [made for made in equals if any(_conflict(made, other) for other in equals)]
        if unclear:
            rules = {rule: made for rule, made in rules.items() if made not in unclear}
            continue
        found.append((best, chosen))
        taken = set(chosen.values())
        rules = {rule: _without(made, chosen.keys(), taken) for rule, made in rules.items()}
    done, used = {name for _, made in found for name in made}, {one for _, made in found for one in made.values()}
    left = [name for name in wanted.values() if name.text not in done]
    return [*found, *_abbreviated(left, [one for one in free.values() if one.text not in used], fits)]


def _abbreviated(
    wanted: Sequence[SplitName], free: Sequence[SplitName], fits: Fits
) -> Iterator[tuple[RenamingRule, Pairs]]:
    """Yield names with as many words that abbreviate each other, if there is only one such tensor and initializer."""
    rivals: dict[tuple[str, ...], list[SplitName]] = defaultdict(list)
    for tensor in free:
        rivals[_initials(tensor)].append(tensor)
    found = [
        (name, tensor)
        for name in wanted
        for tensor in rivals.get(_initials(name), ())
        if _alike(name.words, tensor.words) and fits(name.text, tensor.text)
    ]
    names, tensors = Counter(name.text for name, _ in found), Counter(tensor.text for _, tensor in found)
    for name, tensor in found:
        if names[name.text] == tensors[tensor.text] == 1:
            yield RenamingRule(name.words, tensor.words), {name.text: tensor.text}


def _initials(name: SplitName) -> tuple[str, ...]:
    """Return the kind and the first letters of the words, which names that abbreviate each other have in common."""
    return name.kind, *(word[0] for word in name.words)


def _alike(one: Words, other: Words) -> bool:
    return len(one) == len(other) and all(
        left == right or _abbreviates(*sorted((left, right), key=len)) for left, right in zip(one, other, strict=True)
    )


def _unambiguous(names: Iterable[SplitName]) -> dict[tuple[Words, str], SplitName]:
    """Index names by words and kind; names that differ in neither are left out."""
    found: dict[tuple[Words, str], list[SplitName]] = defaultdict(list)
    for name in names:
        found[name.words, name.kind].append(name)
    return {key: among[0] for key, among in found.items() if len(among) == 1}


def _rules(wanted: Iterable[SplitName], free: Iterable[SplitName], fits: Fits) -> list[RenamingRule]:
    """List the rules that give an initializer the tensor with the longest common ending, the most frequent first."""
    ends: dict[tuple[Words, str], list[SplitName]] = defaultdict(list)
    for name in free:
        for start in range(len(name.words)):
            ends[name.words[start:], name.kind].append(name)
        ends[(), name.kind].extend(() if name.words else (name,))
        ends[_ANY, name.kind].append(name)
    votes: Counter[RenamingRule] = Counter()
    for name in wanted:
        votes.update(_votes(name, ends, fits))
    return [rule for rule, _ in votes.most_common(_MOST_RULES)]


def _votes(name: SplitName, ends: Mapping[tuple[Words, str], list[SplitName]], fits: Fits) -> list[RenamingRule]:
    count = len(name.words)
    for start in range(count + 1):
        end = name.words[start:]
        among = ends.get((end if count else _ANY, name.kind), [])
        fitting = [one for one in among if fits(name.text, one.text)]
        if len(fitting) > _MOST_RIVALS:
            return []
        if fitting:
            return [RenamingRule(name.words[:start], one.words[: len(one.words) - len(end)]) for one in fitting]
    return []


def _paired(
    rule: RenamingRule,
    wanted: Mapping[tuple[Words, str], SplitName],
    free: Mapping[tuple[Words, str], SplitName],
    fits: Fits,
) -> Pairs:
    length = len(rule.new)
    found = {}
    for (words, kind), name in wanted.items():
        if words[:length] == rule.new:
            tensor = free.get((rule.old + words[length:], kind))
            if tensor is not None and fits(name.text, tensor.text):
                found[name.text] = tensor.text
    return found


def _conflict(one: Pairs, other: Pairs) -> bool:
    """Return whether two pairings give an initializer two tensors, or a tensor to two initializers."""
    readers = {tensor: name for name, tensor in other.items()}
    return any(other.get(name, tensor) != tensor or readers.get(tensor, name) != name for name, tensor in one.items())


def _without(made: Pairs, names: Iterable[str], tensors: set[str]) -> Pairs:
    taken = set(names)
    return {name: tensor for name, tensor in made.items() if name not in taken and tensor not in tensors}


def prefixes(rule: RenamingRule, name: SplitName, tensor: SplitName) -> tuple[str, str] | None:
    """Return the prefixes of a pair whose texts are the same after them; None if separators or case differ."""
    new, old = name.starts[len(rule.new)], tensor.starts[len(rule.old)]
    if name.text[new:] != tensor.text[old:]:
        return None
    found = name.text[:new], tensor.text[:old]
    return None if any("*" in one or "{" in one or one.startswith("re:") for one in found) else found
