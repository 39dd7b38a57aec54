"""MLPerf's scenarios: one call after another, all samples at once, calls at random times."""
