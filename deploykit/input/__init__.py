"""Data -> model in three styles: fed by Python, through queues, through tf.data; and a verdict."""
