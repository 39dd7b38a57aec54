"""The release gate: a candidate model against its baseline, check by check."""
