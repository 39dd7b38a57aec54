"""What a model answers, as the files of one part each."""
