"""`python -m jobi_tf` is the command `jobi-tf`."""

from jobi_tf.cli.main import main

main()
