"""The mechanism that transforms share: graph, patterns, pipeline, evaluation, errors."""
