"""Training steps of a graph with ops `init` and `train`, on one batch."""


def losses(graph, feeds: dict, steps: int, op: str = "train") -> list[float]:
    """Return the loss before each step; `op` is run for a step."""
    import tensorflow.compat.v1 as tf

    with graph.as_default(), tf.Session() as session:
        session.run("init")
        found = []
        for _ in range(steps):
            found.append(float(session.run("loss:0", feeds)))
            session.run(op, feeds)
        return found
