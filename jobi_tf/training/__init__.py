"""Configuration, run folders, fit, resume, devices and callbacks."""
