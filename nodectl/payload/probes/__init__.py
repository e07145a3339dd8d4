"""One program a probe, under the probe's name in nodectl/probes."""
