"""Commands, one a module: options in, one call of the API, text or JSON out."""
