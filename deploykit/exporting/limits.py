"""What a version takes at most; nothing heavy is imported."""

MOST_PIXELS = 50_000_000
"""Of an image that is decoded, by default: more than most cameras make, 150 MB."""
