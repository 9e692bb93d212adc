"""Models and what goes in and out of them: values, the one-method protocol, window look-up, built-in models."""
