"""`nodectl metrics`: List the Prometheus metrics; print alert rules and a dashboard."""

from __future__ import annotations

from dataclasses import asdict

import click

from nodectl.cli.app import App
from nodectl.cli.options import text_option
from nodectl.cli.terminal import result
from nodectl.common.resources import data_dir
from nodectl.report.metrics import every_metric
from nodectl.report.table import aligned


@click.group()
def metrics() -> None:
    """Show what nodectl writes for Prometheus, and print what reads it.

    `health`, `probe` and `jobs list` write with --output prometheus --write FILE, for node_exporter's textfiles.
    """


@metrics.command("list")
@click.pass_obj
def list_(app: App) -> None:
    """List the metrics, with their labels and what they say."""
    rows = [
        (metric.name, metric.kind, ", ".join(metric.labels) or "-", metric.about) for metric in every_metric().values()
    ]
    document = {"metrics": [asdict(metric) for metric in every_metric().values()]}
    app.show("metrics", document, aligned([("METRIC", "TYPE", "LABELS", "SAYS"), *rows]))


@metrics.command()
@text_option
def alerts() -> None:
    """Print alert rules, for a file that `rule_files` of Prometheus names."""
    _print("alerts.yml")


@metrics.command()
def dashboard() -> None:
    """Print a dashboard, to be imported into Grafana."""
    _print("dashboard.json")


def _print(name: str) -> None:
    result((data_dir() / "prometheus" / name).read_text(encoding="utf-8").rstrip("\n"))
