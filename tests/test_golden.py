"""What `python -m golden` writes twice is the same, and one changed value is found."""

from __future__ import annotations

import golden


def test_the_same_twice_and_one_changed_value(tmp_path, capsys):
    file, only = tmp_path / "golden.json", "lab vecadd nki trn2 tiled_128"
    assert golden.main(["write", str(file), "--only", only]) == 0
    assert golden.main(["compare", str(file), "--only", only]) == 0
    text = file.read_text("utf-8")
    assert '"status": "passed"' in text
    file.write_text(text.replace('"passed"', '"failed"', 1), "utf-8")
    assert golden.main(["compare", str(file), "--only", only]) == 1
    assert "status | failed | passed\n1 differences" in capsys.readouterr().out
