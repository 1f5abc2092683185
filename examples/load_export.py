"""Queries an export with TensorFlow alone: this program does not import jobi_tf."""

import tensorflow as tf

model = tf.saved_model.load("exports/world/1")
tails = model.signatures["predict_tails"](
    head=tf.constant(["Switzerland"]), relation=tf.constant(["official_language"]), k=tf.constant([3])
)
for name, probability in zip(tails["tail"][0].numpy(), tails["probability"][0].numpy(), strict=True):
    print(name.decode(), round(float(probability), 3))
