"""Sentences without any download: a small grammar of numbers, dates and commands, expanded by a generator.

A rule is a list of alternatives; ``<name>`` stands for another rule, ``|`` separates words of which one is taken.
Words that sound alike are kept apart on purpose: no ``for`` beside ``four``, no ``to`` beside ``two``, no ``thirteen``
beside ``thirty``, no ``light`` beside ``tonight``; in Mandarin no two characters with the same syllable and tone. What
an error rate then measures is the recogniser, not spelling.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

Language = Literal["en", "zh", "mixed"]
Split = Literal["train", "test"]
Rules = dict[str, tuple[str, ...]]

LONGEST = 9
"""Words in the longest English sentence, units (characters and English words) times two in the others."""

ENGLISH: Rules = {
    "sentence": (
        "please <command>",
        "<command>",
        "<command>",
        "<command> <when>",
        "<command> and then <short>",
        "<question>",
        "<statement>",
        "<statement>",
    ),
    "command": (
        "turn <state> the <room> <device>",
        "turn <state> the <device>",
        "set the <dial> at <amount> percent",
        "set the heater at <amount> degrees",
        "set my alarm at <clock>",
        "start the timer with <amount> minutes",
        "<move> the <room> <opening>",
        "play <sound> in the <room>",
        "call <person> at <clock>",
        "send <person> the <paper>",
        "show me the <paper> from <date>",
        "remind me about the <event> <date>",
        "cancel the <event> on <date>",
        "buy <count> <goods> and <count> <goods>",
        "find <count> <goods>",
        "<short>",
    ),
    "short": (
        "<move> the <opening>",
        "play <sound>",
        "stop <sound>",
        "call <person>",
        "repeat the <paper>",
        "wait <count> minutes",
        "find my <paper>",
    ),
    "question": (
        "what is the weather <when>",
        "what is the weather in <month>",
        "where is my <paper>",
        "when is the <event>",
        "is the <opening> open",
        "how many <goods> are in the <room>",
    ),
    "statement": (
        "the <event> is on <date>",
        "my number is <digit> <digit> <digit> <digit>",
        "<person> has <count> <goods>",
        "we need <count> <goods> <when>",
        "<count> <goods> are in the <room>",
        "<person> comes at <clock>",
    ),
    "state": ("on|off|up|down",),
    "device": ("lamp|heater|radio|television",),
    "dial": ("volume|lamp",),
    "room": ("kitchen|bedroom|garden|office",),
    "move": ("open|close|lock",),
    "opening": ("window|door|garage",),
    "sound": ("music|radio",),
    "person": ("anna|peter", "my mother", "my father", "my doctor"),
    "paper": ("message|picture|calendar",),
    "event": ("meeting|dinner|birthday",),
    "goods": ("apples|bottles|tickets|flowers",),
    "when": ("today|tomorrow|tonight", "<day> <part>", "next <day>"),
    "part": ("morning|evening",),
    "day": ("monday|tuesday|wednesday|thursday|friday|saturday|sunday",),
    "month": ("january|february|march|april|may|june|july|august|september|october|november|december",),
    "date": ("<day>", "<month> <number>", "<month> <number>", "<day> <month> <number>"),
    "clock": ("<hour>", "<hour> thirty", "midnight"),
    "hour": ("<digit>", "ten|eleven|twelve"),
    "number": ("<digit>", "ten|eleven|twelve", "twenty <digit>"),
    "count": ("<digit>", "<tens>", "<digit> hundred", "<digit> thousand", "<tens> <digit>"),
    "amount": ("<tens>", "<tens> <digit>"),
    "digit": ("one|two|three|four|five|six|seven|eight|nine",),
    "tens": ("twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety",),
}

MANDARIN: Rules = {
    "sentence": (
        "请<command>",
        "<command>",
        "<command>",
        "<when><command>",
        "<statement>",
        "<statement>",
        "<question>",
    ),
    "command": (
        "<move><room>的<opening>",
        "<move><device>",
        "播放<sound>",
        "给<person>打电话",
        "把音量调到百分之<amount>",
        "<clock>叫我起床",
        "买<count>个<goods>",
        "告诉<person>明天<clock>见",
    ),
    "question": ("<when>天气怎么样", "<room>里有人吗", "<person>在哪里"),
    "statement": (
        "<when><clock>去<city>",
        "我的号码是<digit><digit><digit><digit>",
        "今天是<month>月<number>号",
        "<person>有<count>个<goods>",
        "<person><when>来<city>",
    ),
    "move": ("打开", "关上"),
    "room": ("厨房", "客厅", "花园"),
    "opening": ("门", "窗户"),
    "device": ("电灯", "电脑"),
    "sound": ("音乐", "新闻"),
    "person": ("妈妈", "爸爸", "老师", "同学"),
    "goods": ("苹果", "面包", "鸡蛋"),
    "city": ("北京", "上海", "西安"),
    "when": ("今天", "明天", "后天", "周<weekday>", "下个月"),
    "weekday": ("一", "二", "三", "四", "五", "六"),
    "month": ("<digit>", "十", "十二"),
    "number": ("<digit>", "十<digit>", "二十<digit>"),
    "clock": ("早上<hour>", "晚上<hour>", "<hour>"),
    "hour": ("<few>点", "<few>点半", "十点<minutes>分"),
    "minutes": ("二十", "三十", "四十", "五十"),
    "count": ("<few>", "<tens>", "<few>百", "<tens><digit>"),
    "amount": ("<tens>", "<tens><digit>"),
    "few": ("一", "两", "三", "四", "五", "六", "七", "八", "九"),
    "digit": ("一", "二", "三", "四", "五", "六", "七", "八", "九"),
    "tens": ("二十", "三十", "四十", "五十", "六十", "七十", "八十", "九十"),
}

MIXED: Rules = MANDARIN | {
    "sentence": (
        "请<command>",
        "<command>",
        "<when><command>",
        "<statement>",
    ),
    "command": (
        "播放 <sound>",
        "打开 <device>",
        "关上 <device>",
        "给 <name> 打电话",
        "给 <name> 买<count>个 <gift>",
        "告诉 <name> <clock>开 <event>",
        "把 <device> 调到百分之<amount>",
    ),
    "statement": (
        "<when><clock>有 <event>",
        "<name> <when>来<city>",
        "我的 <thing> 在<room>里",
        "<name> 有<count>个 <gift>",
    ),
    "sound": ("jazz|music|radio|podcast",),
    "device": ("wifi|bluetooth|timer|camera",),
    "name": ("anna|peter|david|linda",),
    "event": ("meeting|party|workshop",),
    "thing": ("passport|laptop|keyboard",),
    "gift": ("pizza|hamburger|chocolate|ticket",),
}

RULES: Mapping[Language, Rules] = {"en": ENGLISH, "zh": MANDARIN, "mixed": MIXED}

_REFERENCE = re.compile(r"<(\w+)>")
_UNIT = re.compile(r"[a-z]+|[\u4e00-\u9fff]")


def units(text: str) -> list[str]:
    """What is counted: English words and single Chinese characters."""
    return _UNIT.findall(text)


def expand(rules: Rules, name: str, generator: np.random.Generator) -> str:
    """Expand rule ``name``: an alternative, in it each reference, then one of the words between bars."""
    alternatives = rules[name]
    chosen = alternatives[generator.integers(len(alternatives))]
    if "|" in chosen:
        words = chosen.split("|")
        return words[generator.integers(len(words))]
    return _REFERENCE.sub(lambda match: expand(rules, match[1], generator), chosen)


def sentence(language: Language, generator: np.random.Generator) -> str:
    """A sentence of 2–9 words in English, 4–18 units in the others; ``generator`` decides, nothing else."""
    shortest, longest = (2, LONGEST) if language == "en" else (4, 2 * LONGEST)
    while True:
        text = expand(RULES[language], "sentence", generator)
        if shortest <= len(units(text)) <= longest:
            return text


def vocabulary(language: Language) -> frozenset[str]:
    """All units that can occur: those of every rule that is reachable from ``sentence``."""
    rules = RULES[language]
    found: set[str] = set()
    seen: set[str] = set()
    open_rules = ["sentence"]
    while open_rules:
        name = open_rules.pop()
        if name in seen:
            continue
        seen.add(name)
        for alternative in rules[name]:
            open_rules += _REFERENCE.findall(alternative)
            found.update(units(_REFERENCE.sub(" ", alternative)))
    return frozenset(found)
