"""`deploykit ship`: from a trained to a served model in stages, with their results stored."""
