"""The only module that calls AWS: clients, retries, paging, and errors turned into sentences."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import boto3
import botocore.config
import botocore.exceptions as be
import botocore.loaders
import botocore.session
from botocore.parsers import ResponseParserError

from . import organisations, rate_limit, transcripts
from .problems import AWS_ERRORS, ClassroomError, explain

T = TypeVar("T")
R = TypeVar("R")
IDS_PER_FILTER = 200  # values that a filter takes (documented: 200)
CLOCKS = ("ec2", "sts")  # whose answers say what time it is
MOST_SKEW = dt.timedelta(minutes=1)  # by which a computer's clock may differ from AWS's (assumed)
GLOBAL = "us-east-1"  # IAM, Budgets and STS are asked here
WORKERS = 8
_LOADER = botocore.loaders.create_loader()


# Nothing else will work either, until the user signs in again.
SIGNED_OUT = (
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
)
DENIED = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "OperationNotPermitted")


def code_of(error: BaseException | None) -> str:
    """Return the AWS error code of an exception, or ""."""
    return (
        error.response.get("Error", {}).get("Code", "") if isinstance(error, be.ClientError) else ""
    )


def status_of(error: be.ClientError) -> int:
    """Return the HTTP status of AWS's answer; 500 if it has none."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 500)


def words_of(error: BaseException) -> str:
    """Return what an error means, in our words where we have some."""
    code = code_of(error)
    if ruled := organisations.explained(str(error), ""):
        return " ".join(ruled)
    return AWS_ERRORS[code][0] if code in AWS_ERRORS else str(error).splitlines()[0][:200]


def aware(value: Any) -> dt.datetime:
    """Return a moment as AWS gives it (a datetime, or seconds) with a time zone."""
    if not isinstance(value, dt.datetime):
        return dt.datetime.fromtimestamp(float(value), dt.timezone.utc)
    return value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)


@contextlib.contextmanager
def doing(what: str, region: str = "") -> Iterator[None]:
    """Turn whatever AWS or the network throws into a sentence that starts with what we were
    doing."""
    try:
        yield
    except be.ClientError as error:
        raise explain(
            code_of(error), error.response.get("Error", {}).get("Message", ""), what, region
        ) from error
    except (
        be.NoCredentialsError,
        be.PartialCredentialsError,
        be.CredentialRetrievalError,
        be.ProfileNotFound,
        be.SSOTokenLoadError,
        be.UnauthorizedSSOTokenError,
        be.TokenRetrievalError,
    ) as error:
        raise ClassroomError(
            f"Could not {what}: there are no usable AWS credentials ({type(error).__name__}).",
            "Run `aws sso login` or `aws configure`, then `python -m classroom doctor`.",
        ) from error
    except (be.EndpointConnectionError, be.HTTPClientError) as error:
        raise ClassroomError(
            f"Could not {what}: AWS did not answer ({type(error).__name__}).",
            "Check the network and run the same command again; it continues where it stopped.",
            exit_code=1,
        ) from error
    except ResponseParserError as error:  # a proxy or a sign-in page of the network answered
        raise ClassroomError(
            f"Could not {what}: what answered was not AWS, or its answer was garbled.",
            "Check whether the network has a sign-in page or a proxy, and run the same command"
            " again.",
            exit_code=1,
        ) from error
    except be.BotoCoreError as error:
        raise ClassroomError(
            f"Could not {what}: {str(error).splitlines()[0][:200]}",
            "Run the same command again.",
            exit_code=1,
        ) from error


def when_assumable(call: Callable[[], R], tries: int = 7) -> R:
    """Do a call that names a role; a new role takes seconds until other services may assume it."""
    for attempt in range(tries):
        try:
            return call()
        except be.ClientError as error:
            if "assum" not in str(error).lower() or attempt == tries - 1:
                raise
            rate_limit.sleep(min(0.5 * 2**attempt, 10))
    raise AssertionError("unreachable")


class Cloud:
    """Hand out boto3 clients that share settings; safe to use from threads."""

    def __init__(self, now: Callable[[], dt.datetime] | None = None) -> None:
        self._clients: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()
        core = botocore.session.get_session()
        core.register_component(
            "data_loader", _LOADER
        )  # service descriptions are large: read each once a process
        self._session = boto3.session.Session(botocore_session=core)
        self._config = botocore.config.Config(
            retries={
                "mode": "standard",
                "total_max_attempts": int(os.environ.get("CLASSROOM_ATTEMPTS", "8")),
            },
            connect_timeout=10,
            read_timeout=60,
            max_pool_connections=WORKERS * 2,
            user_agent_extra="trainium-labs",
        )
        self._now = now
        self._limiter = rate_limit.RateLimiter()
        self._heard: tuple[dt.datetime, float] | None = None  # AWS's time, and our counter then
        self.skew = dt.timedelta()  # how far this computer's clock is ahead of AWS's

    def now(self) -> dt.datetime:
        """Return AWS's time: that of its last answer, and what has passed since. Before the first
        answer, this computer's (rate_limit.now, unless this was made with another clock)."""
        if self._now is None and self._heard is not None:
            time_there, counter = self._heard
            return time_there + dt.timedelta(seconds=rate_limit.clock() - counter)
        return (self._now or rate_limit.now)()

    def _listen(self, client: Any) -> None:
        """Learn AWS's time from the Date header of each answer, of refusals too."""

        def after(response_dict: dict[str, Any] | None = None, **_: Any) -> None:
            if sent := (response_dict or {}).get("headers", {}).get("date"):
                time_there = parsedate_to_datetime(sent)
                self._heard = (time_there, rate_limit.clock())
                self.skew = rate_limit.now() - time_there

        client.meta.events.register("response-received", after)

    def wrong_clock(self) -> str:
        """Return a sentence if this computer's clock is more than a minute off, else ""."""
        if abs(self.skew) <= MOST_SKEW:
            return ""
        here, there = rate_limit.now(), self.now()
        return (
            f"This computer's clock is {round(abs(self.skew).total_seconds() / 60)} minutes"
            f" {'ahead of' if self.skew > dt.timedelta() else 'behind'} AWS's:"
            f" {here:%Y-%m-%d %H:%M} here, {there:%Y-%m-%d %H:%M} there (UTC)."
        )

    def client(self, service: str, region: str = GLOBAL) -> Any:
        """Return the client of a service in a region."""
        with self._lock:
            key = (service, region)
            if key not in self._clients:
                client = self._session.client(service, region_name=region, config=self._config)
                self._limiter.follow(client, service, region)
                transcripts.follow(client, service, region)
                if service in CLOCKS:
                    self._listen(client)
                self._clients[key] = client
            return self._clients[key]

    def ec2_once(self, region: str) -> Any:
        """Return an EC2 client that never repeats a call: for purchases, which know no client
        token, so that a lost answer does not pay twice."""
        config = self._config.merge(botocore.config.Config(retries={"total_max_attempts": 1}))
        with self._lock:
            client = self._session.client("ec2", region_name=region, config=config)
            transcripts.follow(client, "ec2", region)
            return client

    def ec2(self, region: str) -> Any:
        """Return the EC2 client of a region."""
        return self.client("ec2", region)

    def pages(
        self, service: str, region: str, operation: str, key: str, **kwargs: Any
    ) -> list[Any]:
        """Return all items of a listing, page by page."""
        client = self.client(service, region)
        if client.can_paginate(operation):
            return [
                item
                for page in client.get_paginator(operation).paginate(**kwargs)
                for item in page.get(key) or []
            ]
        return list(getattr(client, operation)(**kwargs).get(key) or [])

    def identity(self) -> dict[str, str]:
        """Return account and ARN of the caller."""
        with doing("ask AWS who you are"):
            return self.client("sts").get_caller_identity()

    @property
    def account(self) -> str:
        """Return the account number."""
        if not hasattr(self, "_account"):
            self._account: str = self.identity()["Account"]
        return self._account

    def regions(self) -> list[str]:
        """Return the regions that are enabled for the account."""
        with doing("list the regions"):
            return sorted(r["RegionName"] for r in self.ec2(GLOBAL).describe_regions()["Regions"])


def each(work: Callable[[T], R], items: Iterable[T]) -> list[tuple[T, R | None, Exception | None]]:
    """Run `work` over items on a few threads; one that fails does not stop the others."""
    items = list(items)

    def one(item: T) -> tuple[T, R | None, Exception | None]:
        try:
            return item, work(item), None
        except Exception as error:
            return item, None, error

    if not items:
        return []
    with ThreadPoolExecutor(min(WORKERS, len(items))) as pool:
        try:
            return list(pool.map(one, items))
        except KeyboardInterrupt:  # what has begun ends; nothing more begins
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def run_all(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Run `work` over items on a few threads; raise the first error after all have ended."""
    results = each(work, items)
    for _, _, error in results:
        if error:
            raise error
    return [r for _, r, _ in results]  # type: ignore[misc]
