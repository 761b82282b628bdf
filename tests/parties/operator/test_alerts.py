"""Every alert of docs/alerts.yml fires once, where it should, and none while all is well: `promtool test rules`."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import ROOT
from tests.parties.operator.stage import Stage

RULES = ROOT / "docs" / "alerts.yml"
FIGURES = ROOT / "docs" / "recording.yml"
MINUTES = 13 * 60
WELL = {
    'up{job="fsl-async"}': "1x390",
    'fsl_ready{task="goods"}': "1x390",
    'fsl_task_state{task="goods",state="running"}': "1x390",
    'fsl_task_state{task="goods",state="failed"}': "0x390",
    'fsl_peer_connected{task="goods"}': "1x390",
    'fsl_blobs_free_bytes{task="goods"}': "5e9x390",
    'fsl_store_free_bytes{task="goods"}': "5e9x390",
    'fsl_backup_timestamp_seconds{task="goods"}': "0x390",
    'fsl_round_state{task="goods",state="Open"}': "1x390",
    'fsl_round_state{task="goods",state="Revealed"}': "0x390",
    'fsl_rounds_total{task="goods",outcome="done"}': "0+2x390",
    'fsl_rounds_total{task="goods",outcome="aborted"}': "0x390",
    'fsl_rounds_total{task="goods",outcome="refused"}': "0x390",
    'fsl_violations_total{task="goods",kind="violation"}': "0x390",
    'fsl_warnings_total{task="goods",about="tokens"}': "0x390",
    'fsl_clients_counted_total{task="goods"}': "0+200x390",
    'fsl_clients_excluded_total{task="goods",reason="proof"}': "0+2x390",
    'fsl_clients_excluded_total{task="goods",reason="only_s0"}': "0+2x390",
    'fsl_requests_refused_total{task="goods",reason="busy"}': "0+2x390",
    "fsl_event_loop_stalls_total": "0+2x390",
    "process_open_fds": "100x390",
    "process_max_fds": "1000x390",
}
"""Thirteen hours in which all is well, a sample every two minutes."""

ILL = {
    "ServerGone": ('up{job="fsl-async"}', "0x390"),
    "TaskFailed": ('fsl_task_state{task="goods",state="failed"}', "1x390"),
    "NotReady": ('fsl_ready{task="goods"}', "0x390"),
    "NoRoundDone": ('fsl_rounds_total{task="goods",outcome="done"}', "7x390"),
    "PeerAway": ('fsl_peer_connected{task="goods"}', "0x390"),
    "BlobsFull": ('fsl_blobs_free_bytes{task="goods"}', "1e9x390"),
    "StoreFull": ('fsl_store_free_bytes{task="goods"}', "1e8x390"),
    "BackupOld": ('fsl_backup_timestamp_seconds{task="goods"}', f"{-8 * 86_400}x390"),
    "ReloadFailed": ('fsl_warnings_total{task="goods",about="tokens"}', "0x380 1x10"),
    "RoundStuck": ('fsl_round_state{task="goods",state="Revealed"}', "1x390"),
    "RoundsAborted": ('fsl_rounds_total{task="goods",outcome="aborted"}', "0x380 5x10"),
    "SumRefused": ('fsl_rounds_total{task="goods",outcome="refused"}', "0x380 1x10"),
    "ProtocolViolated": ('fsl_violations_total{task="goods",kind="violation"}', "0x380 1x10"),
    "ClientsLost": ('fsl_clients_excluded_total{task="goods",reason="proof"}', "0+20x390"),
    "TurnedAway": ('fsl_requests_refused_total{task="goods",reason="busy"}', "0+240x390"),
    "EventLoopLags": ("fsl_event_loop_stalls_total", "0+120x390"),
    "DescriptorsShort": ("process_open_fds", "900x390"),
}
"""By alert, the one series that is another one then."""


def alerts() -> set[str]:
    return set(re.findall(r"alert: (\w+)", RULES.read_text()))


def hours(series: dict[str, str], firing: list[str]) -> dict[str, object]:
    return {
        "interval": "2m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{MINUTES}m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing],
            }
        ],
    }


def promtool(*words: object) -> None:
    """Have promtool check or test rules; the test is skipped where it is missing."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing: it comes with Debian's package prometheus")
    told = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def rehearse(path: Path, rules: Path, cases: list[dict[str, object]]) -> None:
    path.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "5m", "tests": cases}))
    promtool("test", "rules", path)


def test_each_alert_fires_once_and_none_while_all_is_well(tmp_path):
    assert alerts() == set(ILL), "every alert has a time at which it must fire"
    cases = [hours(WELL, [])]
    cases += [hours(WELL | {series: values}, [alert]) for alert, (series, values) in ILL.items()]
    rehearse(tmp_path / "cases.yml", RULES, cases)


def test_prometheus_takes_both_files_of_rules():
    promtool("check", "rules", RULES, FIGURES)


def test_figures_are_recorded_as_their_names_say(tmp_path):
    """Four clients of 204 are not counted, for two reasons; nine tenths of rounds take less than 30 s."""
    rounds = {f'fsl_round_seconds_bucket{{task="goods",le="{top}"}}': "0+10x390" for top in ("30", "60", "+Inf")}
    rounds['fsl_round_seconds_bucket{task="goods",le="10"}'] = "0+8x390"
    expected = {"task:fsl_clients_excluded:share_6h": 4 / 204, "task:fsl_round_seconds:p90_6h": 20.0}
    case = hours(WELL | rounds, [])
    case["promql_expr_test"] = [
        {
            "expr": f"abs({name} - {value}) < bool 1e-6",
            "eval_time": f"{MINUTES}m",
            "exp_samples": [{"labels": '{task="goods"}', "value": 1}],
        }
        for name, value in expected.items()
    ]
    rehearse(tmp_path / "figures.yml", FIGURES, [case])


def test_a_series_that_an_alert_counts_is_there_before_its_first_event():
    """Prometheus sees no increase in a series that begins at 1."""
    stage = Stage()
    text = stage.scrape()
    for name in ("fsl_warnings_total", "fsl_violations_total", "fsl_rounds_total", "fsl_clients_excluded_total"):
        assert re.search(rf"^{name}{{.*}} 0\.0$", text, re.MULTILINE), name
