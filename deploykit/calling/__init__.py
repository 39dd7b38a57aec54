"""A model is asked, here or on a server: what goes in, what comes out, what load it bears."""
