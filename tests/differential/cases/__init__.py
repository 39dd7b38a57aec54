"""One module a transform, each with a list CASES of Case and Refusal; every module is found."""
