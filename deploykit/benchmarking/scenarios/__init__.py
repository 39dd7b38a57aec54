"""MLPerf's scenarios: one call after another, all samples at once, or random arrivals."""
