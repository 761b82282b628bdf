"""docs/operating.md and docs/alerts.yml speak of what there is, and of all of it."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from parties.operator.log_fields import FIELDS
from parties.operator.metrics import WARNINGS
from tests import ROOT
from tests.parties.operator.paper import SAMPLES
from tests.parties.operator.stage import Stage

DOCS = ROOT / "docs"
TEXT = (DOCS / "operating.md").read_text(encoding="utf-8")
ALERTS = (DOCS / "alerts.yml").read_text(encoding="utf-8")


def exposed() -> set[str]:
    """Every metric's name, as rules and queries use it."""
    stage = Stage()
    for event in SAMPLES:
        stage.observer.metrics.hear(event)
    text = stage.scrape()
    families = [family for family in text_string_to_metric_families(text) if not family.name.endswith("_created")]
    return {family.name + {"counter": "_total"}.get(family.type, "") for family in families}


def test_every_metric_is_explained_and_no_other():
    told = set(re.findall(r"fsl_\w+", TEXT))
    assert told == {name for name in exposed() if name.startswith("fsl_")}


def test_alerts_are_about_metrics_and_labels_that_exist():
    used = set(re.findall(r"\b(?:fsl|process)_\w+", ALERTS))
    assert used
    assert used <= exposed()
    assert ALERTS.count("- alert:") == ALERTS.count("expr:") == ALERTS.count("summary:")


def test_every_field_of_the_log_is_explained():
    for field in (*FIELDS, "withheld"):
        assert f"`{field}`" in TEXT, field
    for about in WARNINGS:
        assert f"`{about}`" in TEXT, about


def test_its_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (DOCS / link).exists(), link
