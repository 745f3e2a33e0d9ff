"""Where the sockets of shared connections lie: their paths are short, wherever TMPDIR points."""

from __future__ import annotations

import os
import tempfile

import pytest

from labkit.remote import ssh


@pytest.mark.skipif(os.name != "posix", reason="OpenSSH for Windows shares no connections")
def test_a_long_temporary_folder_is_not_used(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 60)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    ssh._sockets.cache_clear()
    try:
        folder = ssh._sockets()
    finally:
        ssh._sockets.cache_clear()
    assert not folder.startswith(str(deep)) and len(folder) <= ssh.SOCKET_FOLDER
    assert os.stat(folder).st_mode & 0o077 == 0
