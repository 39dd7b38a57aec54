"""Files that anybody may have made: read within bounds, and held while they are written."""
