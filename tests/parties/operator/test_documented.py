"""docs/operating.md, the alerts, the recorded figures and the dashboard speak of what there is."""

import json
import re
from itertools import combinations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from parties.operator.log_fields import FIELDS
from parties.operator.metrics import WARNINGS
from tests import ROOT
from tests.parties.operator.paper import SAMPLES
from tests.parties.operator.stage import Stage
from tests.support import guide

DOCS = ROOT / "docs"
TEXT = (DOCS / "operating.md").read_text(encoding="utf-8")
ALERTS = (DOCS / "alerts.yml").read_text(encoding="utf-8")
RECORDING = (DOCS / "recording.yml").read_text(encoding="utf-8")
DASHBOARD = json.loads((DOCS / "dashboard.json").read_text(encoding="utf-8"))
RECORDED = dict(re.findall(r"- record: (\S+)\n\s+expr: (.+)", RECORDING))
METRIC = re.compile(r"\b(?:\w+:)?(?:fsl|process)_\w+(?::\w+)?")


def families() -> list:
    stage = Stage()
    for event in SAMPLES:
        stage.observer.metrics.hear(event)
    found = text_string_to_metric_families(stage.scrape())
    return [family for family in found if not family.name.endswith("_created")]


def exposed() -> set[str]:
    """Every metric's name, as rules and queries use it."""
    return {family.name + {"counter": "_total"}.get(family.type, "") for family in families()}


def labels() -> dict[str, set[str]]:
    """The labels of each series, and of each that is recorded."""
    found: dict[str, set[str]] = {}
    for family in families():
        for sample in family.samples:
            found.setdefault(sample.name, {"instance"}).update(sample.labels)
    for name, expression in RECORDED.items():
        gone = {"le", *re.findall(r"without \((\w+)\)", expression)}
        (found[name],) = (
            {*kept} for kept in {frozenset(found[metric] - gone) for metric in METRIC.findall(expression)}
        )
    return found


def test_every_metric_is_explained_and_no_other():
    told = set(re.findall(r"fsl_\w+", TEXT))
    assert told == {name for name in exposed() if name.startswith("fsl_")}


def test_alerts_are_about_metrics_and_labels_that_exist():
    used = set(re.findall(r"\b(?:fsl|process)_\w+", ALERTS))
    assert used
    assert used <= exposed()
    assert ALERTS.count("- alert:") == ALERTS.count("expr:") == ALERTS.count("summary:")


def test_each_alert_has_a_section_that_says_what_to_do():
    page = (DOCS / "alerts.md").read_text(encoding="utf-8")
    named = re.findall(r"- alert: (\w+)(?:\n.*?)*?runbook: docs/alerts\.md#(\w+)", ALERTS)
    assert [alert for alert, _ in named] == re.findall(r"- alert: (\w+)", ALERTS)
    for alert, anchor in named:
        assert alert.lower() == anchor in guide.anchors(page)
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == [alert for alert, _ in named]


def queries() -> list[tuple[str, str, str]]:
    """Each query of the dashboard, with its panel's title and its legend."""
    return [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    ]


@pytest.mark.parametrize(("title", "expression", "legend"), queries())
def test_the_dashboard_asks_for_metrics_and_labels_that_exist(title, expression, legend):
    there = labels()
    named = set(METRIC.findall(expression))
    assert named
    for metric in named:
        assert metric in there, f"{title} asks for {metric}"
        asked = set(re.findall(r"{{(\w+)}}", legend)) | set(re.findall(r'(\w+)=~?"', expression))
        assert asked <= there[metric], f"{title}: {metric} has no label {asked - there[metric]}"


def test_what_is_recorded_is_shown_and_what_is_shown_as_recorded_is_recorded():
    assert RECORDED
    shown = {name for _, expression, _ in queries() for name in METRIC.findall(expression) if ":" in name}
    assert shown == RECORDED.keys()


def test_no_panel_of_the_dashboard_lies_over_another_and_each_asks_the_chosen_prometheus():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(at["x"], at["y"], at["x"] + at["w"], at["y"] + at["h"]) for at in (one["gridPos"] for one in panels)]
    for one, other in combinations(places, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    assert max(right for _, _, right, _ in places) <= 24
    sources = [panel["datasource"]["uid"] for panel in panels if panel["type"] != "row"]
    assert set(sources) == {"${" + DASHBOARD["templating"]["list"][0]["name"] + "}"}


def test_every_field_of_the_log_is_explained():
    for field in (*FIELDS, "withheld"):
        assert f"`{field}`" in TEXT, field
    for about in WARNINGS:
        assert f"`{about}`" in TEXT, about


def test_its_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (DOCS / link).exists(), link
