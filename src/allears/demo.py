"""The whole path on a small synthetic corpus: speak, prepare, train on several processes, evaluate, transcribe."""

from __future__ import annotations

import csv
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allears.cluster.launch import Launch, launch
from allears.corpora.find import find
from allears.errors import SettingsError, TrainingError
from allears.files import read_json, write_json
from allears.reporting import duration, say, show, table
from allears.shards.prepare import Corpus, prepare
from allears.synthesis.corpus import Settings as SynthesisSettings
from allears.synthesis.corpus import synthesize

if TYPE_CHECKING:
    from pathlib import Path

SYNTHESIS = SynthesisSettings(hours=3.0, test=330, speakers=900, noise=0.5, train_snr_db=(14.0, 26.0))


@dataclass(frozen=True, slots=True)
class Demo:
    """The demo in one folder, which is its run: corpus, dataset, checkpoints and evaluation lie in it."""

    folder: Path
    processes: int

    def run(self) -> dict[str, Any]:
        """Do all of it; what is there already is not done again.

        Raises:
            TrainingError: training or evaluation failed (its own error has been printed).
        """
        if self.processes < 1:
            raise SettingsError(f"--processes must be at least 1, not {self.processes}.")
        began = time.monotonic()
        seconds: dict[str, float] = {}
        for name, part in (
            ("speak", lambda: synthesize(self.folder / "corpus", SYNTHESIS)),
            ("prepare", self._prepare),
            ("train", self._train),
            ("evaluate", self._evaluate),
        ):
            say(f"— {name}")
            started = time.monotonic()
            part()
            seconds[name] = time.monotonic() - started
        rates = read_json(self.folder / "evaluation" / "test" / "result.json")
        heard = {
            "wer": rates["wer"],
            "cer": rates["cer"],
            "processes": read_json(self.folder / "environment.json")["processes"],
            "utterances": rates["utterances"],
            "words": rates["units"],
            "voices": len(self._voices()),
            "seconds": round(time.monotonic() - began, 1),
            "run": str(self.folder),
        }
        self._tell(heard, seconds)
        write_json(self.folder / "demo.json", heard)
        return heard

    def _prepare(self) -> None:
        place = self.folder / "corpus"
        found = find(place)
        prepare(Corpus(place, found.layout, found.utterances, found.rejections), self.folder / "dataset")

    def _train(self) -> None:
        dataset = ["dataset=" + str(self.folder / "dataset"), "train.split=train"]
        self._ranks(["train", "demo", *dataset, "--out", str(self.folder)])

    def _evaluate(self) -> None:
        self._ranks(["evaluate", str(self.folder), str(self.folder / "dataset"), "--split", "test", "--name", "test"])

    def _ranks(self, arguments: list[str]) -> None:
        if launch(arguments, Launch(self.processes)) != 0:
            raise TrainingError(f"the demo stopped in 'allears {arguments[0]}'; the error is above.")

    def _test_rows(self) -> list[dict[str, str]]:
        with (self.folder / "corpus" / "metadata.tsv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        return [row for row in rows if row["split"] == "test"]

    def _voices(self) -> set[str]:
        """Voice variants of the test; none of them occurs in training."""
        return {row["variant"] for row in self._test_rows()}

    def _tell(self, heard: dict[str, Any], seconds: dict[str, float]) -> None:
        one = self._test_rows()[0]
        file = self.folder / "corpus" / one["audio"]
        table(
            "demo",
            ["", ""],
            [
                ["word error rate", f"{heard['wer']:.2%}"],
                ["character error rate", f"{heard['cer']:.2%}"],
                ["test", f"{heard['utterances']} utterances, {heard['words']} words, {heard['voices']} unheard voices"],
                *([name, duration(spent)] for name, spent in seconds.items()),
                ["processes", str(heard["processes"])],
            ],
        )
        show(f"said:  {one['text']}")
        launch(["transcribe", str(self.folder), str(file)], Launch(1))
        show(
            f"audio: {self.folder}/corpus/audio · hypotheses: {self.folder}/evaluation/test/hypotheses.jsonl · "
            f"metrics: {self.folder}/metrics.jsonl · checkpoints: {self.folder}/checkpoints"
        )
