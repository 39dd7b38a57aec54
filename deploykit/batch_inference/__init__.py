"""A model over files of data, part by part, on the processes of a machine or on a cluster."""
