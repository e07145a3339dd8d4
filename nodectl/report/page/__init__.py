"""The report: results of all kinds → one HTML file that asks nobody for anything; docs/report.md."""
