"""`python -m jobi_tf.cli`."""

from .main import main

main()
