"""The environment report."""

from __future__ import annotations

import io
import sys

import pytest
import torch

from composer.utils.environment_report import (
    configure_excepthook,
    disable_env_report,
    enable_env_report,
    get_composer_env_dict,
    main,
    print_env,
)


def test_report_holds_versions(capsys: pytest.CaptureFixture[str]) -> None:
    facts = get_composer_env_dict()
    assert facts["torch_version"] == torch.__version__
    assert facts["host_processor_core_count"] >= 1
    assert facts["node_world_size"] == 1
    text = io.StringIO()
    print_env(text)
    assert torch.__version__ in text.getvalue()
    main()
    assert capsys.readouterr().out == text.getvalue()


def test_hook_is_chained_and_put_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[type[BaseException]] = []

    def earlier(kind: type[BaseException], error: BaseException, traceback: object) -> None:
        seen.append(kind)

    monkeypatch.setattr(sys, "excepthook", earlier)
    enable_env_report()
    configure_excepthook()
    sys.excepthook(ValueError, ValueError("x"), None)
    assert seen == [ValueError]
    assert capsys.readouterr().err.count("Environment report") == 1
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert "Environment report" not in capsys.readouterr().err
    disable_env_report()
    assert sys.excepthook is earlier
    disable_env_report()
    assert sys.excepthook is earlier
