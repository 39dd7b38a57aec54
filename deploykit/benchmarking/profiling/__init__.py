"""Where the time of a call goes."""
