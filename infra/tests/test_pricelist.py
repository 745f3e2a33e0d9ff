"""`prices --refresh` reads AWS's public price list: here a small one made by hand, on localhost."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest
import yaml

from classroom.aws.problems import ClassroomError
from classroom.cli import commands, forecast
from classroom.money import pricelist, prices
from classroom.spec import class_file, instance_types
from conftest import INFRA, ClassFolder, Lab

MADE_BY_HAND = Path(__file__).with_name("price_list")
OURS = INFRA / "classroom/money/prices.yml"
NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.timezone.utc)
FILE = "/offers/v1.0/aws/AmazonEC2/20261120120000/us-east-2/index.csv"


class Quiet(SimpleHTTPRequestHandler):
    """Serve files; `spoiled` holds paths that are answered with another text."""

    spoiled: dict[str, str] = {}

    def do_GET(self) -> None:
        """Answer with the file, or with what spoils it."""
        text = self.spoiled.get(self.path)
        if text is None:
            return super().do_GET()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture()
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the list made by hand; name it as the place of AWS's."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(MADE_BY_HAND)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("CLASSROOM_PRICE_LIST", home)
    monkeypatch.setenv("CLASSROOM_NOW", NOW.isoformat())
    monkeypatch.setattr(Quiet, "spoiled", {})
    yield home
    server.shutdown()
    server.server_close()


def test_the_right_row_of_many_is_read(served: str) -> None:
    found = {n: f.usd for n, f in pricelist.read("us-east-2").items()}
    assert found == {
        "on_demand_hour.trn1.2xlarge": 1.11,
        "on_demand_hour.inf2.xlarge": 0.22,
        "gp3_gib_month": 0.033,
        "public_ipv4_hour": 0.006,
        "alarm_month": 0.12,
        "s3_gib_month": 0.077,  # the dearest tier, not the dearer class
        "s3_write": 0.000007,
        "lambda_gib_second": 0.000077,
        "lambda_request": 0.0000005,  # not that of another product whose name ends the same
    }
    assert pricelist.read("us-east-2")["gp3_gib_month"].source == served + FILE


def test_a_region_without_a_prefix_and_without_a_service(served: str) -> None:
    found = {n: f.usd for n, f in pricelist.read("us-east-1").items()}
    assert found == {"on_demand_hour.trn1.2xlarge": 1.22}


def test_refresh_writes_a_table_with_dates_and_sources_that_the_forecast_uses(
    folder: ClassFolder, served: str
) -> None:
    folder.write(1)
    before = (folder.path / "class.yml").read_text()
    result = commands.run("prices", str(folder.file), refresh=True, check=True)
    assert "nothing was written" in result["summary"] and not (folder.path / "prices.yml").exists()
    result = commands.run("prices", str(folder.file), refresh=True)
    assert result["exit_code"] == 0 and "9 figures read" in result["summary"]
    assert any("trn1.32xlarge is not in the list" in line for line in result["lines"])
    assert any("automation_step keeps" in line for line in result["lines"])
    assert any("prices: prices.yml" in line for line in result["lines"])
    assert (folder.path / "class.yml").read_text() == before
    table = yaml.safe_load((folder.path / "prices.yml").read_text())
    assert table["region"] == "us-east-2"
    assert table["sources"]["alarm_month"]["as_of"] == dt.date(2026, 11, 21)
    folder.write(prices="prices.yml")
    loaded = class_file.load(folder.file, NOW)
    f = forecast.forecast(loaded, NOW)
    assert f.hourly_usd == 1.11 and f.sources["machine"] == "AWS, 2026-11-21, 0 days ago"
    assert f.sources["step"].startswith("from memory")
    assert f.sources["copies"] == f.sources["links"] == "AWS, 2026-11-21, 0 days ago"
    (memory, *_rest) = prices.about(loaded, NOW)
    assert "automation_step" in memory and "gp3" not in memory
    shown = commands.run("prices", str(folder.file))
    rows = {row[0]: row for row in shown["tables"][0]["rows"]}
    assert rows["public_ipv4_hour"][1] == "0.006" and rows["public_ipv4_hour"][4].endswith(".csv")
    assert set(rows) >= {"capacity_block_hour.trn2.3xlarge", "alarm_month", "automation_step"}
    # A second refresh finds the same and keeps what it cannot find.
    commands.run("prices", str(folder.file), refresh=True)
    assert yaml.safe_load((folder.path / "prices.yml").read_text()) == table


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        (pricelist.INDEX, "<html>sign in</html>", "not JSON with 'offers'"),
        (pricelist.INDEX, "{}", "not JSON with 'offers'"),
        (pricelist.INDEX, '{"offers": {}}', "no region index of AmazonEC2"),
        (FILE, "nothing", "no line of column names"),
        (FILE, '"SKU","TermType"\n', "no column Currency"),
        (
            FILE,
            "SKU,TermType,Currency,Unit,PricePerUnit,usageType,operation\n"
            "1,OnDemand,USD,GB-Mo,cheap,EBS:VolumeUsage.gp3,\n",
            "a price is 'cheap'",
        ),
    ],
)
def test_another_shape_gives_a_sentence_and_writes_nothing(
    folder: ClassFolder, served: str, path: str, text: str, words: str
) -> None:
    Quiet.spoiled[path] = text
    with pytest.raises(ClassroomError, match="not as documented") as error:
        commands.run("prices", str(folder.file), refresh=True)
    assert words in str(error.value) and not (folder.path / "prices.yml").exists()


def test_no_network_gives_a_sentence(
    folder: ClassFolder, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLASSROOM_PRICE_LIST", served + "/elsewhere")
    with pytest.raises(ClassroomError, match="could not be read.*not found"):
        commands.run("prices", str(folder.file), refresh=True)
    monkeypatch.setenv("CLASSROOM_PRICE_LIST", "http://127.0.0.1:1")
    with pytest.raises(ClassroomError, match="could not be read.*refused"):
        commands.run("prices", str(folder.file), refresh=True)


def test_what_is_looked_for_is_what_the_table_holds() -> None:
    held = {p.figure for p in prices.all_prices(instance_types.price_table())}
    looked_for = {w.figure for w in pricelist.WANTED}
    kept = {p for p in held if p.split(".")[0] in pricelist.NOT_LISTED}
    assert looked_for | kept == held and not looked_for & kept


def test_the_forecast_tells_copies_and_links_where_the_class_has_them(
    folder: ClassFolder, classroom: Callable[..., Any]
) -> None:
    folder.write(4, hours_per_student=10)
    answer = classroom("forecast", folder.file)
    assert "S3" not in str(answer["tables"]) and "s3_gib_month" not in str(answer["lines"])
    folder.write(work_copies="s3", my="lambda")
    f = forecast.forecast(class_file.load(folder.file, NOW), NOW)
    answer = classroom("forecast", folder.file)
    rows = {row[0]: row[1:] for row in answer["tables"][0]["rows"]}
    assert rows["copies of the work (S3)"][0] == f"${f.copies_usd:.2f}"
    assert rows["the function behind the links (Lambda)"][1].startswith("from memory, 2026-11-22")
    assert "s3_gib_month" in str(answer["lines"]) and "lambda_request" in str(answer["lines"])


class Api:
    """Answer as the Pricing API does, two products a page, from the list made by hand."""

    def __init__(self, home: str) -> None:
        self.home, self.pages = home, 0

    def get_paginator(self, operation: str) -> Api:
        assert operation == "get_products"
        return self

    def paginate(
        self, ServiceCode: str, FormatVersion: str, Filters: list[dict[str, str]]
    ) -> Iterator[dict[str, Any]]:
        asked = {f["Field"]: f["Value"] for f in Filters}
        path = f"/offers/v1.0/aws/{ServiceCode}/20261120120000/{asked['regionCode']}/index.csv"
        kind = asked.get("instanceType") or asked.get("volumeApiName") or ""
        rows = [r for r in pricelist._rows(self.home + path) if r["usageType"].endswith(kind)]
        for k in range(0, len(rows), 2):
            self.pages += 1
            yield {"PriceList": [self.product(r) for r in rows[k : k + 2]]}

    @staticmethod
    def product(row: dict[str, str]) -> str:
        price = {"unit": row["Unit"], "pricePerUnit": {row["Currency"]: row["PricePerUnit"]}}
        about = {"usagetype": row["usageType"], "operation": row["operation"]}
        term = {"SKU.TERM": {"priceDimensions": {"SKU.TERM.RATE": price}}}
        return json.dumps(
            {"product": {"attributes": about}, "terms": {row["TermType"]: term}, "version": "1"}
        )


def test_the_api_says_the_same_as_the_list(served: str) -> None:
    api = Api(served)
    asked, read = pricelist.ask(api, "us-east-2"), pricelist.read("us-east-2")
    assert {n: f.usd for n, f in asked.items()} == {n: f.usd for n, f in read.items()}
    assert api.pages > 6, "page by page"
    assert asked["gp3_gib_month"].source == "AWS Pricing API, AmazonEC2"


def test_refresh_asks_the_api_first_and_reads_the_list_where_it_may_not(
    folder: ClassFolder, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLASSROOM_PRICE_LIST")
    monkeypatch.setattr(pricelist, "HOME", served)
    loaded = class_file.load(folder.write(1, regions=["us-east-2"]), NOW)
    done = prices.refresh(loaded, NOW.date(), True, lambda: Api(served))
    assert {row[3].split(",")[0] for row in done["tables"][0]["rows"]} == {"AWS Pricing API"}

    class Closed(Api):
        def paginate(self, *_: Any, **__: Any) -> Iterator[dict[str, Any]]:
            said = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
            raise botocore.exceptions.ClientError(said, "GetProducts")

    class Garbled(Api):
        @staticmethod
        def product(row: dict[str, str]) -> str:
            return "{}"

    for other in (Closed(served), Garbled(served)):
        done = prices.refresh(loaded, NOW.date(), True, lambda other=other: other)
        assert all(row[3].startswith(served) for row in done["tables"][0]["rows"])
        assert len(done["tables"][0]["rows"]) == 9


def test_old_prices_are_read_again_where_the_account_may_ask(
    folder: ClassFolder, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLASSROOM_PRICE_LIST")
    loaded = class_file.load(folder.write(1, regions=["us-east-2"]), NOW)
    assert "(old: prices --refresh)" in prices.rate(loaded, NOW.date()), "never without saying so"

    def closed() -> Api:
        raise botocore.exceptions.NoCredentialsError

    assert not prices.renew(loaded, NOW.date(), closed)
    assert prices.renew(loaded, NOW.date(), lambda: Api(served))
    assert prices.rate(loaded, NOW.date()) == "$1.11 an hour, AWS, 2026-11-21, 0 days ago"
    again = dt.timedelta(days=prices.OLD_DAYS)
    assert not prices.hourly_price(loaded).from_memory
    assert "(old" not in prices.rate(loaded, NOW.date() + again)
    assert "(old" in prices.rate(loaded, NOW.date() + again + dt.timedelta(days=1))
    (folder.path / "mine.yml").write_text(OURS.read_text(encoding="utf-8"), encoding="utf-8")
    theirs = class_file.load(folder.write(prices="mine.yml"), NOW)
    assert not prices.renew(theirs, NOW.date(), lambda: Api(served)), "class.yml names a table"


@pytest.mark.parametrize(
    ("live", "words"), [(1.34375, ""), (2.6875, "$100 is $200"), (None, "from")]
)
def test_the_price_behind_caps_is_compared_with_todays(
    lab: Lab, live: float | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "live_price", lambda run: live)
    lines = [line for line in lab("provision")["lines"] if "Caps go by" in line]
    assert [words in line for line in lines] == ([True] if words else []), lines
    notes = [r[2] for r in lab("doctor")["tables"][0]["rows"] if r[0] == "note"]
    assert any("Caps go by" in n for n in notes) == bool(words)


def test_the_price_that_aws_answers_is_read(lab: Lab) -> None:
    assert "AWS asks" not in str(lab("provision")["lines"])
    lab.post("set", hourly={lab.folder.data["instance_type"]: 2.6875})
    lines = lab("provision")["lines"]
    assert any("AWS asks $2.6875 in us-east-2" in line for line in lines), lines
