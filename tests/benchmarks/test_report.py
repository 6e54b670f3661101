"""The Markdown: tables by question, targets, engines side by side, what is missing."""

from __future__ import annotations

from typing import Any

from benchmarks.report import markdown
from benchmarks.rows import Missing
from tests.benchmarks.samples import report, row, stat


def test_each_question_has_a_table_without_empty_columns() -> None:
    text = markdown(
        report(row("a"), row("b", question="recovery", unit="s", target=5, better="less", value=3))
    )
    assert "## durable_steps\n\n| what | value |\n| --- | --- |\n| a | 100 (100–100) steps/s |" in text
    assert "| b | 3 (3–3) s | ≤ 5: met |" in text


def test_a_missed_target_and_the_base_are_shown() -> None:
    text = markdown(report(row(target=4_500, base="bare", base_value=stat(50), base_unit="commits/s")))
    assert "| bare: 50 (50–50) commits/s | 2 × | ≥ 4,500: missed |" in text


def test_rows_of_one_subject_stand_side_by_side_with_durability_and_goal() -> None:
    subject = "ten steps, best rate"
    ours = row("10 steps, 4 runners", 7_000, subject=subject, question="kept")
    dbos = row("called by 8", 300, subject=subject, engine="DBOS 3 (SQLite)", durability="FULL")
    restate = row("16 clients", 2_000, subject=subject, engine="Restate 1")
    text = markdown(report(ours, dbos, restate))
    assert "DBOS 3 (SQLite): called by 8 | 300 (300–300) steps/s | 23.3 × | ≥ 12 ×: met | FULL |" in text
    assert "Restate 1: 16 clients | 2,000 (2,000–2,000) steps/s | 3.5 × | ≥ 4.5 ×: missed |" in text


def test_fresh_and_kept_processes_each_stand_beside_a_peer_and_the_goal_is_for_those_kept() -> None:
    subject = "ten steps, best rate"
    fresh = row("4 runners", 2_500, subject=subject)
    kept = row("10 steps, 4 runners", 9_000, subject=subject, question="kept")
    text = markdown(report(fresh, kept, row("4 workers", 6_000, subject=subject, engine="dura 1")))
    assert "| durable_steps: 4 runners | 2,500 (2,500–2,500) steps/s | dura 1: 4 workers |" in text
    assert text.count("≥ 1.4 ×: met") == 1


def test_a_goal_beside_a_direct_call_is_not_one_beside_a_queue() -> None:
    fields: dict[str, Any] = {"subject": "one step, median", "unit": "ms", "better": "less"}
    ours = row("one step, median", 4, question="kept", **fields)
    direct = row("called directly, median", 10, engine="DBOS 3 (SQLite)", **fields)
    queue = row("through its queue", 1_000, engine="DBOS 3 (SQLite)", **fields)
    text = markdown(report(ours, direct, queue))
    assert text.count("≤ 0.45 ×: met") == 1


def test_a_peer_without_pwf_beside_it_has_no_ratio() -> None:
    text = markdown(report(row(subject="one", engine="Other 1")))
    assert "| one | not measured | Other 1: 4 runners | 100 (100–100) steps/s |" in text


def test_what_is_missing_is_told_with_the_reason() -> None:
    missing = Missing(name="Restate", why="can not be installed: npm is not installed")
    text = markdown(report(missing=[missing], notes=["the load was 9"]))
    assert "- **Restate**: can not be installed: npm is not installed" in text
    assert "**Note:** the load was 9." in text
