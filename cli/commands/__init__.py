"""The commands of `jobi-tf`, one file each; a command is imported when it is called."""
