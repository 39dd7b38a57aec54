"""Data for models: samples, preprocessing, and input pipelines in the styles of feed_dict,
queues and tf.data.
"""
