"""Which Neuron SDK runs which kernels, and which machine image carries it."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

NEURON_IMAGE_OWNER = "amazon"
# Release day of each SDK, from the release notes of the Neuron documentation. Image names carry a
# date, not a version, so a pinned older SDK is the newest image dated from its release until the
# next one. (documented)
RELEASES: dict[str, str] = {
    "2.21.0": "2024-12-20",
    "2.21.1": "2025-01-14",
    "2.22.0": "2025-04-03",
    "2.22.1": "2025-05-12",
    "2.23.0": "2025-05-20",
    "2.24.0": "2025-06-24",
    "2.24.1": "2025-06-30",
    "2.25.0": "2025-07-31",
    "2.26.0": "2025-09-18",
    "2.26.1": "2025-10-29",
    "2.27.0": "2025-12-19",
    "2.27.1": "2026-01-14",
    "2.28.0": "2026-02-26",
    "2.28.1": "2026-03-13",
    "2.29.0": "2026-04-06",
    "2.29.1": "2026-05-01",
    "2.30.0": "2026-05-21",
    "2.31.0": "2026-07-07",
    "2.31.1": "2026-08-12",
    "2.32.0": "2026-08-17",
    "2.33.0": "2026-10-19",
}
DIALECTS = ("neuronxcc.nki", "nki")


def parse(version: str) -> tuple[int, int, int]:
    """Return (2, 26, 1) for "2.26.1"; raise ValueError otherwise."""
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?", str(version))
    if not match:
        raise ValueError(version)
    return int(match[1]), int(match[2]), int(match[3] or 0)


def normal(version: str) -> str:
    """Return "2.26.0" for "2.26"."""
    return ".".join(map(str, parse(version)))


def dialect_problem(version: str, dialect: str) -> tuple[str, str] | None:
    """Return (what, remedy) when kernels of `dialect` do not compile with SDK `version`."""
    minor = parse(version)[:2]
    if dialect == "neuronxcc.nki" and minor >= (2, 30):
        return (
            (
                f"SDK {version} refuses kernels that import neuronxcc.nki: from 2.30 on it is a"
                " compile error."
            ),
            (
                'Pin `sdk: "2.26.1"` (2.27 to 2.29 carry both packages), or set `dialect: nki`:'
                " every lab has its kernels in that dialect as well (kernels_nki.py)."
            ),
        )
    if dialect == "nki" and minor < (2, 27):
        return (
            f"SDK {version} has no `nki` package; it came with 2.27.",
            'Pin `sdk: "2.29.0"` or newer, or set `dialect: neuronxcc.nki`.',
        )
    if dialect == "nki" and minor < (2, 29):
        return (
            f"SDK {version} carries NKI 0.{minor[1] - 26}; the labs' kernels in that dialect need"
            " 0.3 (outputs in shared_hbm, nc_matmul with accumulate=), which came with 2.29.",
            'Pin `sdk: "2.29.0"` or newer, or set `dialect: neuronxcc.nki`.',
        )
    return None


def profiler_for(version: str) -> str:
    """Return the profiler that belongs to the SDK: neuron-profile (+ InfluxDB 2) ended with
    2.29."""
    return "neuron-profile" if parse(version)[:2] < (2, 29) else "neuron-explorer"


def ubuntu_for(version: str) -> str:
    """Return the Ubuntu release of the multi-framework image (24.04 images appear with 2.27)."""
    return "22.04" if parse(version)[:2] < (2, 27) else "24.04"


def tools_of(version: str) -> str:
    """Return the release ("2.26") of the package aws-neuronx-tools that belongs to an SDK.

    The Neuron documentation's "Release Content" lists it with the SDK's own first two numbers from
    2.22 on; 2.21 came with tools 2.20.
    """
    major, minor, _ = parse(version)
    return f"{major}.{minor}" if (major, minor) >= (2, 22) else "2.20"


@dataclass(frozen=True)
class ImageQuery:
    """Say how to find the image of one SDK: by name pattern, by what its description says, else
    within a window of days.

    AWS's parameter `latest` is no help: it moves on to the next SDK.
    """

    sdk: str
    pattern: str
    since: dt.date
    until: dt.date | None  # first day that belongs to the next release


def image_query(version: str) -> ImageQuery:
    """Return the query for a pinned SDK; raise KeyError for a release this table does not know."""
    version = normal(version)
    ordered = sorted(RELEASES, key=parse)
    since = dt.date.fromisoformat(RELEASES[version])
    later = [dt.date.fromisoformat(RELEASES[v]) for v in ordered if parse(v) > parse(version)]
    return ImageQuery(
        sdk=version,
        pattern=f"Deep Learning AMI Neuron (Ubuntu {ubuntu_for(version)}) *",
        since=since,
        until=min(later) if later else None,
    )


def image_date(name: str) -> dt.date | None:
    """Read the date at the end of an image name such as "... (Ubuntu 22.04) 20251029"."""
    match = re.search(r"(20\d{2})(\d{2})(\d{2})\s*$", name)
    try:
        return dt.date(*map(int, match.groups())) if match else None
    except ValueError:
        return None


def image_sdk(description: str) -> str | None:
    """Read the SDK that a description names, such as "... Neuron SDK 2.32.0 ..."."""
    match = re.search(r"Neuron SDK (\d+\.\d+(?:\.\d+)?)", description)
    return normal(match[1]) if match else None


def pick_image(images: list[dict], query: ImageQuery) -> dict | None:
    """Return the newest image that says it carries the SDK; only where none says anything, the
    newest whose date lies in the SDK's window."""
    versions = [(image_sdk(i.get("Description") or ""), i) for i in images]
    exact = [i for version, i in versions if version == query.sdk]
    dated = [
        (image_date(i.get("Name", "")), i)
        for i in (exact or [i for version, i in versions if version is None])
    ]
    if exact:
        named = [(day or dt.date.min, i["ImageId"], i) for day, i in dated]
        return max(named, key=lambda f: f[:2])[2]
    if query.until is None:  # any later release would fit the window
        return None
    fitting = [
        (day, i["ImageId"], i) for day, i in dated if day and query.since <= day < query.until
    ]
    return max(fitting, key=lambda f: f[:2])[2] if fitting else None
