"""Forecasts say what they are made of: a dated table, one's own table, or today's price.

These tests need no fake cloud: `nox -s tests` runs them without the packages of infra.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
import yaml

from classroom.cli import forecast
from classroom.money import prices
from classroom.spec import class_file, instance_types
from classroom.spec.run import Run
from conftest import ClassFolder

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.timezone.utc)


def test_the_table_has_a_date_a_source_and_every_type() -> None:
    table = instance_types.price_table()
    assert isinstance(table["as_of"], dt.date) and table["source"].startswith("https://")
    assert set(table["on_demand_hour"]) | set(table["capacity_block_hour"]) == set(
        instance_types.TYPES
    )


def test_a_forecast_is_the_sum_of_its_parts_and_never_above_the_worst_case(
    folder: ClassFolder,
) -> None:
    folder.write(4, hours_per_student=10)
    f = forecast.forecast(class_file.load(folder.file, NOW), NOW)
    assert f.planned_usd == pytest.approx(4 * 10 * 1.34375)
    assert f.disk_usd == pytest.approx(4 * 150 * 0.08 * 55 / 30.4, rel=0.02)
    assert f.planned_usd < f.total_usd < f.worst_usd
    assert f.alarm_usd == pytest.approx((4 + 2) * 0.10 * 55 / 30.4, rel=0.02)
    assert f.step_usd == pytest.approx(4 * 2 * 0.002 * 55, rel=0.03)
    assert f.hours_in_budget == pytest.approx(50 / 1.34375)
    parts = {"machine", "disk", "address", "alarm", "step", "stop", "copies", "links"}
    assert set(f.sources) == parts
    assert f.stop_usd == f.copies_usd == f.links_usd == 0, "class.yml asks for none of them"
    assert f.sources["disk"] == "from memory, 2025-11-01, 385 days ago"


def test_a_stop_for_each_student_is_in_the_forecast(folder: ClassFolder) -> None:
    """AWS charges for each budget with an action from the third on; the class's is one."""
    for students, paid in ((1, 0), (4, 3)):
        budget = {"per_student_usd": 50, "class_usd": 50 * students, "stop_each": True}
        folder.write(students)
        folder.write(budget=budget)
        f = forecast.forecast(class_file.load(folder.file, NOW), NOW)
        assert f.stop_usd == pytest.approx(paid * 0.10 * 55, rel=0.03)


def test_copies_and_links_are_in_the_forecast_where_the_class_has_them(
    folder: ClassFolder,
) -> None:
    """Ten hours are sixty copies of 0.02 GiB, each kept a month after the next; the last until a
    month after the class. The function looks 96 times a day and answers each student 20 times."""
    folder.write(4, hours_per_student=10)
    plain = forecast.forecast(class_file.load(folder.file, NOW), NOW)
    folder.write(work_copies="s3", my="lambda")
    f = forecast.forecast(class_file.load(folder.file, NOW), NOW)
    days = 55
    kept = 0.02 * (60 * 30 / 30.4 + days / 30.4 + 30 / 30.4) * 0.023
    assert f.copies_usd == pytest.approx(4 * (kept + 120 * 0.000005), rel=0.02)
    calls = days * (96 + 4 * 20)
    assert f.links_usd == pytest.approx(calls * (2e-7 + 2 * 0.25 * 0.0000166667), rel=0.02)
    more = f.copies_usd + f.links_usd + f.alarm_usd - plain.alarm_usd  # one for the function
    assert f.total_usd == pytest.approx(plain.total_usd + more)
    assert f.worst_usd == pytest.approx(plain.worst_usd + more)


def test_a_table_of_ones_own_counts(folder: ClassFolder) -> None:
    table = {
        **instance_types.price_table(),
        "on_demand_hour": {"trn1.2xlarge": 2.0},
        "as_of": "today",
    }
    (folder.path / "prices.yml").write_text(yaml.safe_dump(table))
    folder.write(1, prices="prices.yml")
    assert forecast.forecast(class_file.load(folder.file, NOW), NOW).hourly_usd == 2.0


def test_old_prices_and_prices_from_memory_are_said_with_the_way_to_refresh_them(
    folder: ClassFolder,
) -> None:
    lines = prices.about(class_file.load(folder.file, NOW), NOW)
    assert "From memory" in lines[0] and "on_demand_hour.trn1.2xlarge" in lines[0]
    assert "Up to 385 days old" in lines[1] and "alarm_month" not in lines[1]
    assert "prices CLASS --refresh" in lines[-1]
    table = {**instance_types.price_table(), "as_of": dt.date(2026, 11, 1)}
    del table["from_memory"], table["sources"]
    (folder.path / "prices.yml").write_text(yaml.safe_dump(table))
    folder.write(prices="prices.yml")
    loaded = class_file.load(folder.file, NOW)
    assert prices.about(loaded, NOW) == []
    assert len(prices.about(loaded, NOW + dt.timedelta(days=200))) == 2
    (folder.path / "prices.yml").write_text(yaml.safe_dump({**table, "as_of": "today"}))
    instance_types.price_table.cache_clear()
    assert "no date" in prices.about(loaded, NOW)[0]


def test_a_table_from_before_alarms_had_a_price_takes_ours_and_says_how_old_it_is(
    folder: ClassFolder,
) -> None:
    table = {**instance_types.price_table(), "as_of": dt.date(2026, 11, 1)}
    del table["alarm_month"], table["sources"], table["from_memory"]
    (folder.path / "prices.yml").write_text(yaml.safe_dump(table))
    folder.write(1, prices="prices.yml")
    f = forecast.forecast(class_file.load(folder.file, NOW), NOW)
    assert f.alarm_usd > 0 and "from memory" in f.sources["alarm"]
    assert f.sources["disk"] == "AWS, 2026-11-01, 20 days ago"


@pytest.mark.parametrize(
    ("answer", "price"),
    [
        (
            [
                {
                    "terms": {
                        "OnDemand": {
                            "a": {"priceDimensions": {"b": {"pricePerUnit": {"USD": "1.5"}}}}
                        }
                    }
                }
            ],
            1.5,
        ),
        ([], None),
        ([{"terms": {}}], None),
    ],
)
def test_todays_price_is_used_only_if_the_answer_holds_one(
    folder: ClassFolder, answer: list, price: float | None
) -> None:
    class Pricing:
        def get_products(self, **_: Any) -> dict[str, Any]:
            return {"PriceList": [json.dumps(item) for item in answer]}

    class Cloud:
        def client(self, *_: str) -> Pricing:
            return Pricing()

    run = Run(class_file.load(folder.file, NOW), Cloud())  # type: ignore[arg-type]
    assert forecast.live_price(run) == price
