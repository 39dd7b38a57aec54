"""The net: words of a title and of a text -> numbers -> embeddings -> two convolutions -> stars."""

from models.text_rating.reviews import vocabulary

EMBEDDING = 32
FILTERS = 64
WIDTH = 3  # words that a filter sees at once
HIDDEN = 64
LEARNING_RATE = 2e-3


def training_graph(seed: int):
    """Return the graph of one training step, with Adam.

    Inputs `title` and `review`, words of any number with "" behind the last one, string [N, ?], and
    `label`, stars, float32 [N]; ops `init`, which also fills the table, and `train`; tensors `loss`
    and `out`, stars from 1 to 5.
    """
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default() as graph:
        tf.set_random_seed(seed)
        title = tf.placeholder(tf.string, [None, None], name="title")
        review = tf.placeholder(tf.string, [None, None], name="review")
        label = tf.placeholder(tf.float32, [None], name="label")
        words = vocabulary()
        numbers = tf.range(len(words), dtype=tf.int64)
        unknown = len(words)
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(words, numbers), unknown, name="words"
        )
        embeddings = tf.get_variable("embeddings", [len(words) + 1, EMBEDDING])
        import_replicas = [_tower(tf, name, table.lookup(text), embeddings)
                  for name, text in (("title_tower", title), ("review_tower", review))]  # fmt: skip
        hidden = tf.nn.relu(_dense(tf, tf.concat(import_replicas, 1), HIDDEN, "hidden"))
        score = tf.squeeze(_dense(tf, hidden, 1, "score"), 1)
        out = tf.add(1.0, 4 * tf.sigmoid(score), name="out")
        loss = tf.reduce_mean(tf.square(out - label), name="loss")
        tf.train.AdamOptimizer(LEARNING_RATE).minimize(loss, name="train")
        variables = tf.variables_initializer(tf.global_variables(), name="init_variables")
        tf.group(variables, tf.tables_initializer(), name="init")
    return graph


def _tower(tf, name: str, numbers, embeddings):
    """Return the mean over all places of what each filter sees; places without a word give none."""
    with tf.variable_scope(name):
        known = tf.cast(tf.not_equal(numbers, 0), tf.float32)[..., tf.newaxis]
        vectors = tf.gather(embeddings, numbers) * known
        weights = tf.get_variable("weights", [WIDTH, EMBEDDING, FILTERS])
        bias = tf.get_variable("bias", [FILTERS], initializer=tf.zeros_initializer())
        seen = tf.nn.relu(tf.nn.conv1d(vectors, weights, 1, "SAME") + bias) * known
        count = tf.maximum(tf.reduce_sum(known, 1), 1.0)
        return tf.reduce_sum(seen, 1) / count


def _dense(tf, x, size: int, name: str):
    with tf.variable_scope(name):
        weights = tf.get_variable("weights", [x.shape[-1], size])
        bias = tf.get_variable("bias", [size], initializer=tf.zeros_initializer())
        return tf.nn.bias_add(tf.matmul(x, weights), bias)
