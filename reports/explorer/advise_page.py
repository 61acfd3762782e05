"""The calculator: what `advise` says of the reader's network, evaluated in the page from the same model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from reports.explorer.html import template
from reports.facts import numbers
from reports.facts.advice import IN_FLOAT32, NOISE, REFERENCES, SENTENCES, SHORT_S, WORTH_TRYING

SCRIPTS = ("stage_plans.js", "advise.js", "calculator.js")


def render_calculator(model: Mapping[str, Any]) -> str:
    """The calculator as HTML without a page around it, of the model as `ladder.run.outlook.model_facts` gives it.

    Its scripts stand beside the page.
    """
    stages = {
        name: {**stage, "precision_words": numbers.precision(stage["precision"])}
        for name, stage in model["stages"].items()
    }
    facts = {
        **model,
        "stages": stages,
        "references": list(REFERENCES),
        "reference_words": REFERENCES,
        "in_float32": IN_FLOAT32,
        "sentences": {**SENTENCES, "guess": model["guess"]},
        "noise": NOISE,
        "worth_trying": WORTH_TRYING,
        "short_s": SHORT_S,
    }
    packed = json.dumps(facts, separators=(",", ":")).replace("<", "\\u003c")
    return template("calculator.html", model=Markup(packed), chips=model["chips"], own=model["chip"], scripts=SCRIPTS)
