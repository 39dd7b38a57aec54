"""Tables with named columns as input: CSV, Parquet and JSON Lines, read with pyarrow."""
